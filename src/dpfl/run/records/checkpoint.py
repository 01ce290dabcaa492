"""The checkpoint of a run: one safetensors file that holds a `RunState`.

Its tensors are the model, the velocity of the server's momentum, and what weights, clients and step
policies remember. Its metadata hold two JSON texts: `state` has the counters, and `sha256` has a
digest of each tensor. So a file that has changed since it was written is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from dpfl.errors import DpflError
from dpfl.privacy import Release
from dpfl.run.records.digests import array_sha256, vector_sha256
from dpfl.server.state import RunState

if TYPE_CHECKING:
    from torch import Tensor

NAME = "checkpoint.safetensors"
MEMORY = "memory."
"""The prefix of the names of what a step policy remembers."""

_DAMAGE = (SafetensorError, OSError, KeyError, TypeError, ValueError)
_CHANGE = "its numbers have changed since it was written"


def checkpoint_bytes(state: RunState) -> bytes:
    """Writes the state of a run as a checkpoint.

    Args:
        state: The state after a round.

    Returns:
        The content of the file.
    """
    from safetensors.torch import save

    tensors = {"vector": state.vector, "velocity": state.velocity}
    optional = {"weights": state.weights, "kept": state.client_vectors, "average": state.average}
    tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    tensors |= {f"{MEMORY}{name}": tensor for name, tensor in state.memory.items()}
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    digests = {name: vector_sha256(tensor) for name, tensor in tensors.items()}
    return save(tensors, {"state": json.dumps(_numbers(state)), "sha256": json.dumps(digests)})


def read_checkpoint(path: Path, fresh: RunState) -> RunState:
    """Reads the state of a run from its checkpoint.

    Args:
        path: The file.
        fresh: The state before the first round, which has the sizes and the releases of the model.

    Returns:
        The state as it was written.

    Raises:
        DpflError: The file is damaged, or belongs to another model.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            numbers, digests = (json.loads(file.metadata()[key]) for key in ("state", "sha256"))
        if digests != {name: vector_sha256(tensor) for name, tensor in tensors.items()}:
            raise ValueError(_CHANGE)
        vector, velocity = tensors["vector"], tensors["velocity"]
        if vector.shape != fresh.vector.shape or velocity.shape != fresh.vector.shape:
            raise ValueError("it belongs to another model")
        memory = {
            name.removeprefix(MEMORY): tensor
            for name, tensor in tensors.items()
            if name.startswith(MEMORY)
        }
        state = _state(fresh, vector, velocity, numbers)
        return replace(
            state,
            memory=memory,
            weights=tensors.get("weights"),
            client_vectors=tensors.get("kept"),
            average=tensors.get("average"),
        )
    except _DAMAGE as error:
        raise DpflError(
            f"The checkpoint {path} is damaged ({error}); restore it from a copy, or start a "
            "new run."
        ) from error


def read_counters(path: Path) -> dict[str, Any]:
    """Reads the counters of a checkpoint, without torch.

    Args:
        path: The file.

    Returns:
        The counters by name, such as `round`, and `model_sha256`, the digest of the model.

    Raises:
        DpflError: The file cannot be read, or has changed since it was written.
    """
    try:
        with safe_open(path, "np") as file:
            digests = {name: array_sha256(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            numbers, recorded_digests = (
                json.loads(file.metadata()[key]) for key in ("state", "sha256")
            )
        if digests != recorded_digests:
            raise ValueError(_CHANGE)
        return {**numbers, "model_sha256": digests.get("average", digests["vector"])}
    except _DAMAGE as error:
        raise DpflError(
            f"The checkpoint {path} cannot be read ({error}); restore it from a copy."
        ) from error


def _numbers(state: RunState) -> dict[str, Any]:
    return {
        "round": state.round,
        "tau": state.tau,
        "iterations": state.iterations,
        "shown": state.cohort_size,
        "bytes": state.bytes,
        "seconds": state.seconds,
        "remaining": state.remaining,
        "paid": state.debits,
        "lost": state.lost_replies,
        "clips": [_clip_norm(state.samples), _clip_norm(state.clients)],
    }


def _state(
    fresh: RunState, vector: Tensor, velocity: Tensor, numbers: Mapping[str, Any]
) -> RunState:
    samples, clients = numbers["clips"]
    return RunState(
        vector,
        velocity,
        _with_clip_norm(fresh.samples, samples),
        _with_clip_norm(fresh.clients, clients),
        [int(count) for count in numbers["remaining"]],
        int(numbers["round"]),
        int(numbers["tau"]),
        int(numbers["iterations"]),
        int(numbers["shown"]),
        int(numbers["bytes"]),
        float(numbers["seconds"]),
        debits=[int(count) for count in numbers["paid"]],
        lost_replies=[str(line) for line in numbers.get("lost", [])],
    )


def _clip_norm(release: Release | None) -> float | None:
    return release.clip.clip_norm if release and release.clip.clip_norm != float("inf") else None


def _with_clip_norm(release: Release | None, clip_norm: float | None) -> Any:
    if release is None or clip_norm is None:
        return release
    clip = replace(release.clip, clip_norm=clip_norm)  # type: ignore[type-var]
    return replace(release, clip=clip)
