"""Seeds of 128 bits, and the masks that ChaCha20 makes of them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpfl.errors import DpflError
from dpfl.secagg.messages import SumId

SEED = 16
"""Bytes of a seed: what is shared out is short, and 2^128 guesses are out of reach."""

DIGEST = 32

Whole = np.ndarray[Any, np.dtype[Any]]
"""Unsigned numbers of 32 or 64 bits, added modulo 2^32 or 2^64."""


def derive(secret: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt=None, info=info).derive(secret)


def pair_seed(agreed: bytes, at: SumId, one: str, other: str) -> bytes:
    """The same for both, and another for every sum: what is opened of one round says nothing of any
    other.
    """
    return derive(agreed, at.words("pair", *sorted((one, other))), SEED)


def mask(seed: bytes, at: SumId, size: int, bits: int) -> Whole:
    key = derive(seed, at.words("mask", str(bits)), 32)
    stream = (
        Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
        .encryptor()
        .update(bytes(size * bits // 8))
    )
    return np.frombuffer(stream, _unsigned(bits))


def add_pair(numbers: Whole, seed: bytes, at: SumId, one: str, other: str, times: int = 1) -> None:
    """In place: the mask of the pair as `one` adds it; in the sum of both it cancels."""
    pair = mask(seed, at, len(numbers), bits_of(numbers))
    numbers += pair if (one < other) == (times > 0) else -pair


def bits_of(numbers: Whole) -> int:
    if numbers.dtype not in (np.dtype("<u4"), np.dtype("<u8")) or numbers.ndim != 1:
        raise DpflError("A secure sum is of unsigned whole numbers of 32 or 64 bits, in one row.")
    return 8 * numbers.dtype.itemsize


def _unsigned(bits: int) -> str:
    return {32: "<u4", 64: "<u8"}[bits]


def digest(seed: bytes, at: SumId, owner: str, other: str) -> bytes:
    """By which a seed that was put together again is known to be the right one; it betrays nothing
    of 128 random bits.
    """
    return hashlib.sha256(at.words("seed", owner, other) + seed).digest()
