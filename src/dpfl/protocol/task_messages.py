"""Writes tasks and replies as parts of messages, and reads them back.

    words = task_to_words(task)      # plain JSON: {"part": "task", "round": 0, ...}
    task_from_words(words) == task   # the same task on the other side, or a ProtocolError
    task_name(task)                  # its name within the run, such as "0/train"

A round between server and node has four steps, and each of them is a function here:

1. The server writes its `ClientTask` (`task_to_words`). The model's vector is an array of the same
   message.
2. The node reads it (`task_from_words`). A task that can be read is well formed, and no more: the
   node's policy still has to allow it.
3. The node writes its `ClientReply` (`reply_to_words`): two fields, and the update and other values
   as arrays.
4. The server reads it (`reply_from_words`), and refuses arrays of another type, shape or length.

Both sides distrust what they read. `wire_parts.py` lists the parts that may be in a message and the
bounds of their fields; everything else is refused. `messages.py` signs the message and checks its
arrays. Writing is strict, too: what the other side would refuse is refused before it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dpfl import tasks
from dpfl.client.task import ClientReply, ClientTask
from dpfl.codec import tag_of
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.protocol.value_forms import number, refuse, text, truth, whole
from dpfl.protocol.wire_parts import (
    LEARNING,
    NOISE_SHARE_PARTS,
    QUERY_PARTS,
    TASKS,
    from_words,
    to_words,
)
from dpfl.refusals import ProtocolError, RefusalReason

__all__ = [
    "QUERY_PARTS",
    "ProtocolError",
    "learning_from_words",
    "learning_to_words",
    "noise_shares_to_words",
    "number",
    "reply_from_words",
    "reply_to_words",
    "task_from_words",
    "task_name",
    "task_to_words",
    "text",
]

RAW = ("answer", "distance", "gradient", "gradients", "last_losses", "last_step", "losses", "slope")
"""The values that a node may send beside an update."""


def task_to_words(task: ClientTask) -> dict[str, Any]:
    """Writes a task.

    Args:
        task: The task.

    Returns:
        Words from which the node makes the same task.

    Raises:
        ProtocolError: The task has a part that cannot travel.
    """
    return to_words(task, TASKS)


def task_from_words(words: Any) -> ClientTask:
    """Reads a task.

    Args:
        words: A value that came over a wire.

    Returns:
        The task. Nothing about it is allowed yet: that is for the node's policy to say.

    Raises:
        ProtocolError: The words are no task.
    """
    return from_words(words, TASKS)  # type: ignore[no-any-return]


def noise_shares_to_words(noise_shares: NoiseShares) -> dict[str, Any]:
    """Writes the terms on which nodes share the noise of a secure sum.

    Args:
        noise_shares: The terms.

    Returns:
        The words.
    """
    return to_words(noise_shares, NOISE_SHARE_PARTS)


def learning_to_words(task: tasks.Task) -> dict[str, Any]:
    """Writes what is to be predicted: the task of a run's data.

    Args:
        task: The learning task.

    Returns:
        The words.

    Raises:
        ProtocolError: The task is of the user's own and cannot travel.
    """
    return to_words(task, LEARNING)


def learning_from_words(words: Any) -> tasks.Task:
    """Reads what is to be predicted.

    Args:
        words: A value that came over a wire.

    Returns:
        The learning task.

    Raises:
        ProtocolError: The words are no learning task.
    """
    return from_words(words, LEARNING)  # type: ignore[no-any-return]


def task_name(task: ClientTask, session: str = "") -> str:
    """Names a task within its run.

    A round is trained once and a query is asked once per run, so two messages with the same name
    are the same task. In a secure sum that holds within a session: with new keys it is another
    release.

    Args:
        task: The task.
        session: The session of the secure sum, if the task is for one.

    Returns:
        The name, such as `3/train`.
    """
    name = f"0/{tag_of(task.query)}" if task.query else f"{task.round}/train"
    return f"{name}/{session[:32]}" if task.noise_shares else name


def reply_to_words(reply: ClientReply) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Writes a release.

    Args:
        reply: A reply with an update or an answer. Refusals and failures are messages of another
            kind.

    Returns:
        The fields and the arrays.

    Raises:
        ProtocolError: The reply has nothing to send.
    """
    if reply.refusal or reply.failure or (reply.update is None and not reply.raw):
        refuse()
    arrays = {f"raw_{name}": np.asarray(value) for name, value in (reply.raw or {}).items()}
    if reply.update is not None:
        arrays["update"] = reply.update.detach().numpy()
    return {"client": reply.client, "inside": bool(reply.inside)}, arrays


def reply_from_words(
    words: Any, arrays: Mapping[str, np.ndarray], size: int | None = None
) -> ClientReply:
    """Reads a release.

    Args:
        words: A value that came over a wire.
        arrays: The arrays that came with it.
        size: How many numbers the model has; None if the reader does not know.

    Returns:
        The reply. An update is a row of float32, and nothing beside it is longer than the model.

    Raises:
        ProtocolError: The words or the arrays are no release.
    """
    if type(words) is not dict or words.keys() != {"client", "inside"}:
        refuse()
    client, inside = whole()(words["client"]), truth(words["inside"])
    raw = _raw_values(arrays)
    update = arrays.get("update")
    if update is None:
        if not raw:
            refuse(RefusalReason.BAD_ARRAYS)
        return ClientReply(client, inside=inside, raw=raw)
    if update.dtype != np.float32 or update.ndim != 1 or size not in (None, update.size):
        refuse(RefusalReason.BAD_ARRAYS)
    if any(array.size > max(update.size, 1) for array in raw.values()):
        refuse(RefusalReason.BAD_ARRAYS)
    return ClientReply(client, torch.from_numpy(update), inside, raw=raw or None)


def _raw_values(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Reads the arrays of a reply beside its update."""
    raw = {}
    for full_name, array in arrays.items():
        if full_name == "update":
            continue
        name = full_name.removeprefix("raw_")
        if name == full_name or name not in RAW or array.ndim > 1 or array.dtype.kind != "f":
            refuse(RefusalReason.BAD_ARRAYS)
        raw[name] = array
    return raw
