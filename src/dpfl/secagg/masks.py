"""Seeds of 128 bits, and the masks that they expand to: PRG is ChaCha20, keyed by HKDF-SHA256."""

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
"""Bytes of a seed: short to share out, and 2^128 guesses are out of reach."""

DIGEST = 32
"""Bytes of a digest."""

Whole = np.ndarray[Any, np.dtype[Any]]
"""Unsigned integers of 32 or 64 bits, added modulo 2^32 or 2^64."""


def derive(secret: bytes, info: bytes, length: int) -> bytes:
    """Derives a key (HKDF-SHA256).

    Args:
        secret: The secret.
        info: What the key is for.
        length: Bytes of the key.

    Returns:
        The key.
    """
    return HKDF(SHA256(), length, salt=None, info=info).derive(secret)


def pair_seed(secret: bytes, sum_id: SumId, one: str, other: str) -> bytes:
    """Derives s_uv, the seed of a pair for one sum.

    It is the same for both members, and another for every sum: what is opened of one round says
    nothing about any other.

    Args:
        secret: The secret of the pair.
        sum_id: The sum.
        one: One member.
        other: The other member.

    Returns:
        The seed.
    """
    return derive(secret, sum_id.words("pair", *sorted((one, other))), SEED)


def mask(seed: bytes, sum_id: SumId, size: int, bits: int) -> Whole:
    """Expands a seed to a mask: PRG(seed).

    Args:
        seed: The seed.
        sum_id: The sum.
        size: How many numbers.
        bits: 32 or 64.

    Returns:
        Uniform integers.
    """
    key = derive(seed, sum_id.words("mask", str(bits)), 32)
    stream = (
        Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
        .encryptor()
        .update(bytes(size * bits // 8))
    )
    return np.frombuffer(stream, _integer_type(bits))


def add_pair(
    numbers: Whole, seed: bytes, sum_id: SumId, one: str, other: str, times: int = 1
) -> None:
    """Adds the mask of a pair in place, with the sign of one of them; in the sum of both it
    cancels.

    Args:
        numbers: Changed in place.
        seed: The seed of the pair.
        sum_id: The sum.
        one: The member whose sign is taken.
        other: The other member.
        times: 1 to add the mask; -1 to remove it.
    """
    pair = mask(seed, sum_id, len(numbers), bits_of(numbers))
    numbers += pair if (one < other) == (times > 0) else -pair


def bits_of(numbers: Whole) -> int:
    """Reads the width of integers.

    Args:
        numbers: A row of unsigned integers.

    Returns:
        32 or 64.

    Raises:
        DpflError: They are anything else.
    """
    if numbers.dtype not in (np.dtype("<u4"), np.dtype("<u8")) or numbers.ndim != 1:
        raise DpflError("A secure sum needs one row of unsigned whole numbers of 32 or 64 bits.")
    return 8 * numbers.dtype.itemsize


def _integer_type(bits: int) -> str:
    return {32: "<u4", 64: "<u8"}[bits]


def digest(seed: bytes, sum_id: SumId, owner: str, other: str) -> bytes:
    """Computes the digest by which a seed that was put together from shares is checked.

    It reveals nothing of 128 random bits.

    Args:
        seed: The seed.
        sum_id: The sum.
        owner: The member who used the seed.
        other: The other member of the pair; the owner itself for its own mask.

    Returns:
        The digest.
    """
    return hashlib.sha256(sum_id.words("seed", owner, other) + seed).digest()
