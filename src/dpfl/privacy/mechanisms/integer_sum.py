"""Vectors as whole numbers on a grid, summed modulo 2^32 or 2^64: the same sum in any order, masked
or not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.noise import check_stddev
from dpfl.privacy.mechanisms.noise_shares import MIN_GRID_STEPS
from dpfl.privacy.mechanisms.secure_noise import standard_normal

TAIL = 9.5
"""Deviations that no normal number passes that is made of 64 bits (9.42)."""

_BLOCK = 1 << 14

IntegerArray = np.ndarray[Any, np.dtype[Any]]
RealArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class IntegerSum:
    """A sum over `clients` of vectors whose numbers are within `bound`, each with noise of
    deviation `share` of its own.

    The grid is a power of two that follows from the noise alone. Numbers are rounded once, after
    their noise was added: that is post-processing, and nothing is added to the sensitivity for it.
    A number beyond the bound is moved to it, which brings any two vectors closer, never apart; so
    the sum stays below 2^(bits - 1), and wrapping around cannot happen.
    """

    share: float
    bound: float
    clients: int

    def __post_init__(self) -> None:
        check_stddev(self.share)
        if not 0 < self.bound < math.inf:
            raise DpflError(
                "The numbers of a whole sum need a bound that is positive and finite, not "
                f"{self.bound}."
            )
        if self.clients < 1:
            raise DpflError(f"A sum has at least one client, not {self.clients}.")
        if self.largest >= 2**63:
            raise DpflError(
                f"A sum over {self.clients} clients of numbers up to {self.bound:g} with noise of "
                f"deviation {self.share:g} "
                "each does not fit into 64 bits; raise the noise, lower the clip, or draw fewer "
                "samples."
            )

    @property
    def unit(self) -> float:
        """The step of the grid: a power of two, LEAST_STEPS of them or up to twice as many to a
        share's deviation.
        """
        return math.ldexp(1.0, math.frexp(self.share)[1] - 1) / MIN_GRID_STEPS

    @property
    def steps(self) -> float:
        return self.share / self.unit

    @property
    def largest(self) -> int:
        """No sum is further from 0, in steps: bound and noise of every client, and both
        roundings.
        """
        return self.clients * (math.ceil(self.bound / self.unit) + math.ceil(TAIL * self.steps) + 1)

    @property
    def bits(self) -> int:
        return 32 if self.largest < 2**31 else 64

    @property
    def kind(self) -> str:
        return f"<u{self.bits // 8}"

    def numbers(self, vector: RealArray, rng: np.random.Generator) -> IntegerArray:
        """round(x / g + N(0, share^2) / g) modulo 2^bits, the noise under a key from the generator
        that nobody ever sees.

        The whole part of x / g is set aside before, so that however large it is the noise is added
        to what is left of it with all its digits.
        """
        stream = Cipher(algorithms.ChaCha20(rng.bytes(32), bytes(16)), mode=None).encryptor()
        found = np.empty(len(vector), self.kind)
        for start in range(0, len(vector), _BLOCK):
            block = vector[start : start + _BLOCK].astype(np.float64)
            np.clip(np.nan_to_num(block, copy=False, nan=0.0), -self.bound, self.bound, out=block)
            block /= self.unit
            whole = np.rint(block)
            block -= whole
            bits = np.frombuffer(stream.update(bytes(8 * (len(block) + len(block) % 2))), np.uint64)
            block += standard_normal(bits)[: len(block)] * self.steps
            exact = whole.astype(np.int64) + np.rint(block, out=block).astype(
                np.int64
            )  # float64 ends at 2^53
            found[start : start + _BLOCK] = exact.astype(self.kind)
        return found

    def total(self, numbers: IntegerArray) -> RealArray:
        """The sum that the numbers stand for, modulo nothing."""
        return (
            numbers.astype(self.kind).view(self.kind.replace("u", "i")).astype(np.float64)
            * self.unit
        )
