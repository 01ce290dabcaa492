"""Signed messages: fields, arrays of numbers, and the signature of whoever wrote them.

Everything that server and nodes say to each other has this form. There is no code in it, no pickle
and no path. The bytes are:

    DPFL2 | length of the header (4 bytes, little-endian) | header | arrays | signature (64 bytes)

- The *header* is JSON in canonical form (UTF-8, sorted keys, no spaces). Its `arrays` entry lists
  the name, type, shape and offset of each array.
- The *arrays* lie one after another, little-endian, without gaps.
- The *signature* is Ed25519 over all bytes before it, by the sender's own key.

`read` trusts nothing that it has not checked. It goes on in this order, so that what a stranger
sends costs no more than one signature check:

1. the size, and the first bytes;
2. the signature, over the bytes as they came;
3. the header: that it is in canonical form, so that no two headers mean the same;
4. the arrays: that the announced sizes add up to what is there, before any of it is copied;
5. the numbers: that all of them are finite.

Whoever reads a message also has to check who it is for and what it answers. Both are fields, which
`dpfl.node.requests` and `dpfl.engines.node_channel` compare.
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

__all__ = ["EVERYONE", "ProtocolError", "RefusalReason", "SignedMessage", "digest", "read", "write"]

MAGIC = b"DPFL2"
EARLIER = (b"DPFL1",)
"""The first bytes of messages of earlier versions."""
EVERYONE = "*"
"""The receiver of a ping to an address whose node is not known yet."""
SIGNATURE = 64
LENGTH = 4
MOST_HEAD = 1 << 20
"""Bytes of a header."""
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
    """A message whose signature was checked.

    Attributes:
        header: The fields of the header, without its list of arrays.
        arrays: The arrays by name.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def digest(message: bytes) -> str:
    """Computes the digest by which an answer names the message that it answers.

    Args:
        message: All bytes of the message.

    Returns:
        SHA-256, in hexadecimal digits.
    """
    return hashlib.sha256(message).hexdigest()


def write(
    fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray], key: Ed25519PrivateKey
) -> bytes:
    """Writes and signs a message.

    Args:
        fields: The fields of the header; `arrays` is not one of them.
        arrays: The arrays by name.
        key: The sender's key.

    Returns:
        The bytes of the message.

    Raises:
        ProtocolError: `read` would refuse it, for example because a number is not finite.
    """
    if len(arrays) > MOST_ARRAYS:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    entries, parts, offset = [], [], 0
    for name, values in sorted(arrays.items()):
        array = np.ascontiguousarray(values).reshape(np.shape(values))
        entries.append({**_describe(name, array), "offset": offset})
        parts.append(array.astype(TYPES[array.dtype.name], copy=False).tobytes())
        offset += array.nbytes
    header = _canonical({**fields, "arrays": entries})
    if "arrays" in fields or len(header) > MOST_HEAD:
        raise ProtocolError(RefusalReason.BAD_HEAD)
    body = b"".join([MAGIC, len(header).to_bytes(LENGTH, "little"), header, *parts])
    return body + key.sign(body)


def _describe(name: str, array: np.ndarray) -> dict[str, Any]:
    """Writes the entry of an array in the header, except for its offset."""
    if array.dtype.name not in TYPES or not _NAME.fullmatch(name):
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    if array.ndim > MOST_DIMENSIONS:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    if not np.isfinite(array).all():
        raise ProtocolError(RefusalReason.NOT_FINITE)
    return {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}


def read(data: bytes, key: Ed25519PublicKey, most: int) -> SignedMessage:
    """Checks and reads a message.

    Args:
        data: The bytes as they came.
        key: The key that must have signed them.
        most: The most bytes that a message may have.

    Returns:
        The message. Its arrays are copies.

    Raises:
        ProtocolError: The bytes are anything but a message of this key.
    """
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
    header = _header(bytes(body[start : start + length]))
    return SignedMessage(header, _arrays(header.pop("arrays", None), body[start + length :]))


def _canonical(header: Mapping[str, Any]) -> bytes:
    try:
        return canonical(header)
    except (TypeError, ValueError, RecursionError):
        raise ProtocolError(RefusalReason.BAD_HEAD) from None


def _header(text: bytes) -> dict[str, Any]:
    """Parses a header. One that is not in canonical form is refused: keys that occur twice, numbers
    that are not finite, spaces.
    """
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError(RefusalReason.BAD_HEAD) from None
    if not isinstance(header, dict) or _canonical(header) != text:
        raise ProtocolError(RefusalReason.BAD_HEAD)
    return header


def _arrays(entries: Any, body: memoryview) -> dict[str, np.ndarray]:
    """Reads the arrays. The announced sizes must add up to what is there before any of it is
    copied.
    """
    if not isinstance(entries, list) or len(entries) > MOST_ARRAYS:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    places: dict[str, tuple[np.dtype[Any], tuple[int, ...], int]] = {}
    end, last = 0, ""
    for entry in entries:
        name, dtype, shape = _entry(entry, end)
        if name <= last:
            raise ProtocolError(RefusalReason.BAD_ARRAYS)
        places[name] = dtype, shape, end
        end, last = end + math.prod(shape) * dtype.itemsize, name
    if end != len(body):
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    return {name: _array(body, *place) for name, place in places.items()}


def _entry(entry: Any, offset: int) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    """Reads the name, type and shape of an array that must begin at `offset`."""
    if not isinstance(entry, dict) or entry.keys() != _FIELDS:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    name, shape = _name(entry["name"]), _shape(entry["shape"])
    dtype = TYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None or type(entry["offset"]) is not int or entry["offset"] != offset:
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    return name, dtype, shape


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
    array = np.ndarray(shape, dtype, body, offset).copy()
    if not np.isfinite(array).all():
        raise ProtocolError(RefusalReason.NOT_FINITE)
    return array
