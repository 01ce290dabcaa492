"""Digests that name a run and its results: the record, the installed code and the weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w

from dpfl.lazy_import import torch

if TYPE_CHECKING:
    from torch import Tensor

ID_DIGITS = 32
"""Hexadecimal digits in the name of a run."""


def without_none(value: Any) -> Any:
    """Leaves out what is not set, because TOML has no null.

    Args:
        value: A record of mappings, sequences and plain values.

    Returns:
        The record without the keys whose value is None. Keys are strings, sequences are lists.
    """
    if isinstance(value, Mapping):
        return {str(key): without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [without_none(item) for item in value]
    return value


def record_id(record: Mapping[str, Any]) -> str:
    """Computes the name of a run in its ledgers.

    The name is a digest of the experiment as it ran, so debits tell which experiment they were made
    for. The record holds a nonce, which stays in the run's folder. Without the nonce, whoever sees
    the name could try out what the record may hold.

    Args:
        record: The content of `experiment.toml`. An `id` in its section `run` does not count.

    Returns:
        The first 128 bits of a SHA-256, in hexadecimal.
    """
    run = {key: value for key, value in record.get("run", {}).items() if key != "id"}
    text = tomli_w.dumps(without_none({**record, "run": run}))
    return hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS]


@cache
def code_sha256() -> str:
    """Computes the digest of the package as it is installed.

    The digest covers the path and the content of every Python file. It is computed once per
    process, because a process keeps running the code that it has read.

    Returns:
        A SHA-256 in hexadecimal.
    """
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def vector_sha256(vector: Tensor) -> str:
    """Computes the digest of a model's weights.

    Args:
        vector: The weights as one flat vector.

    Returns:
        A SHA-256 of their float32 bytes, in hexadecimal.
    """
    return array_sha256(vector.detach().to(torch.float32).contiguous().numpy())


def array_sha256(array: np.ndarray) -> str:
    """Computes the same digest as `vector_sha256` for an array, without torch.

    Args:
        array: The weights as one flat array.

    Returns:
        A SHA-256 of their float32 bytes, in hexadecimal.
    """
    return hashlib.sha256(array.astype(np.float32, copy=False).tobytes()).hexdigest()
