"""Letters: bytes with a head of words, arrays of numbers, and the signature of whoever wrote them.
No code, no pickle, no path.

    DPFL2 | length of the head (4 bytes, little-endian) | head | arrays | Ed25519 signature of all
    before it (64 bytes)

The head is JSON in one written form (UTF-8, sorted keys, no spaces). Its `arrays` list the name,
type, shape and offset of each array, which lie one after another, little-endian. The signature is
checked first, and sizes before anything is made of them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpfl.codec import canonical
from dpfl.refusals import ProtocolError, RefusalReason

__all__ = ["ProtocolError", "RefusalReason", "SignedMessage", "digest", "read", "write"]

MAGIC = b"DPFL2"
EARLIER = (b"DPFL1",)
"""The first bytes of letters of earlier versions."""
SIGNATURE = 64
LENGTH = 4
MOST_HEAD = 1 << 20
MOST_ARRAYS = 64
MOST_DIMENSIONS = 8
TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"), "float64": np.dtype("<f8"),
    "uint8": np.dtype("u1"), "uint32": np.dtype("<u4"), "uint64": np.dtype("<u8"),
}  # fmt: skip
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_FIELDS = {"name", "dtype", "shape", "offset"}


@dataclass(frozen=True)
class SignedMessage:
    head: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def digest(letter: bytes) -> str:
    """What an answer names a letter by."""
    return hashlib.sha256(letter).hexdigest()


def write(
    head: Mapping[str, Any], arrays: Mapping[str, np.ndarray], key: Ed25519PrivateKey
) -> bytes:
    """Refused where `read` would refuse it."""
    entries, parts, offset = [], [], 0
    for name, given in sorted(arrays.items()):
        array = np.ascontiguousarray(given).reshape(np.shape(given))
        dtype = TYPES.get(array.dtype.name)
        if (
            dtype is None
            or not _NAME.fullmatch(name)
            or array.ndim > MOST_DIMENSIONS
            or len(arrays) > MOST_ARRAYS
        ):
            raise ProtocolError(RefusalReason.BAD_ARRAYS)
        if not np.isfinite(array).all():
            raise ProtocolError(RefusalReason.NOT_FINITE)
        entries.append(
            {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "offset": offset}
        )
        parts.append(array.astype(dtype, copy=False).tobytes())
        offset += array.nbytes
    words = _written({**head, "arrays": entries})
    if "arrays" in head or len(words) > MOST_HEAD:
        raise ProtocolError(RefusalReason.BAD_HEAD)
    body = b"".join([MAGIC, len(words).to_bytes(LENGTH, "little"), words, *parts])
    return body + key.sign(body)


def read(data: bytes, key: Ed25519PublicKey, most: int) -> SignedMessage:
    """A letter of this key, of `most` bytes at most; anything else is `Bad`."""
    start = len(MAGIC) + LENGTH
    if len(data) > most:
        raise ProtocolError(RefusalReason.TOO_LARGE)
    if data[: len(MAGIC)] in EARLIER:
        raise ProtocolError(RefusalReason.OTHER_FORMAT)
    if len(data) < start + SIGNATURE or not data.startswith(MAGIC):
        raise ProtocolError(RefusalReason.NOT_A_LETTER)
    body = memoryview(data)[:-SIGNATURE]
    try:
        key.verify(data[-SIGNATURE:], body)
    except InvalidSignature:
        raise ProtocolError(RefusalReason.BAD_SIGNATURE) from None
    length = int.from_bytes(data[len(MAGIC) : start], "little")
    if length > MOST_HEAD or start + length > len(body):
        raise ProtocolError(RefusalReason.BAD_HEAD)
    head = _head(bytes(body[start : start + length]))
    return SignedMessage(head, _arrays(head.pop("arrays", None), body[start + length :]))


def _written(head: Mapping[str, Any]) -> bytes:
    try:
        return canonical(head)
    except (TypeError, ValueError, RecursionError):
        raise ProtocolError(RefusalReason.BAD_HEAD) from None


def _head(words: bytes) -> dict[str, Any]:
    """What is not in the one written form is refused: keys that occur twice, numbers that are not
    finite, spaces.
    """
    try:
        head = json.loads(words)
    except (ValueError, RecursionError):
        raise ProtocolError(RefusalReason.BAD_HEAD) from None
    if not isinstance(head, dict) or _written(head) != words:
        raise ProtocolError(RefusalReason.BAD_HEAD)
    return head


def _arrays(entries: Any, body: memoryview) -> dict[str, np.ndarray]:
    """All announced sizes add up to what is there before any of it is copied."""
    if not isinstance(entries, list) or len(entries) > MOST_ARRAYS:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    planned: dict[str, tuple[np.dtype[Any], tuple[int, ...], int]] = {}
    end, last = 0, ""
    for entry in entries:
        if not isinstance(entry, dict) or entry.keys() != _FIELDS:
            raise ProtocolError(RefusalReason.BAD_ARRAYS)
        name, shape = _name(entry["name"]), _shape(entry["shape"])
        dtype = TYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        if (
            dtype is None
            or name <= last
            or type(entry["offset"]) is not int
            or entry["offset"] != end
        ):
            raise ProtocolError(RefusalReason.BAD_ARRAYS)
        planned[name] = dtype, shape, end
        end, last = end + math.prod(shape) * dtype.itemsize, name
    if end != len(body):
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    return {name: _array(body, *found) for name, found in planned.items()}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    return name


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    if not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    return tuple(shape)


def _array(
    body: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int
) -> np.ndarray:
    found = np.ndarray(shape, dtype, body, offset).copy()
    if not np.isfinite(found).all():
        raise ProtocolError(RefusalReason.NOT_FINITE)
    return found
