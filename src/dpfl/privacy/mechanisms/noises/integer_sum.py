"""Vectors as integers on a grid, summed modulo 2^32 or 2^64, so that every order gives the same
sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.noises.noise import check_stddev
from dpfl.privacy.mechanisms.noises.noise_shares import MIN_GRID_STEPS
from dpfl.privacy.mechanisms.noises.secure_noise import standard_normal

TAIL = 9.5
"""Deviations that no normal number passes that is made of 64 bits (9.42)."""

_BLOCK = 1 << 14

IntegerArray = np.ndarray[Any, np.dtype[Any]]
RealArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class IntegerSum:
    """A sum over clients of bounded vectors, each with its client's share of the noise.

    The grid is a power of two that follows from the noise alone. Numbers are rounded once, after
    their noise was added. Rounding is then post-processing and adds nothing to the sensitivity. A
    number beyond the bound is moved to it, which never brings two vectors apart. So the sum stays
    below 2^(bits - 1) and cannot wrap around.

    Attributes:
        share: The standard deviation of each client's noise.
        bound: The largest magnitude of a number before its noise.
        clients: The number of clients.
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
        """The step g of the grid: a power of two, of which a share's deviation has 16 to 32."""
        return math.ldexp(1.0, math.frexp(self.share)[1] - 1) / MIN_GRID_STEPS

    @property
    def steps(self) -> float:
        """The standard deviation of a share, in steps of the grid."""
        return self.share / self.unit

    @property
    def largest(self) -> int:
        """The largest sum in steps: bound, noise and both roundings of every client."""
        return self.clients * (math.ceil(self.bound / self.unit) + math.ceil(TAIL * self.steps) + 1)

    @property
    def bits(self) -> int:
        """The width of the integers: 32 if every sum fits, else 64."""
        return 32 if self.largest < 2**31 else 64

    @property
    def kind(self) -> str:
        """The numpy type of the integers."""
        return f"<u{self.bits // 8}"

    def numbers(self, vector: RealArray, rng: np.random.Generator) -> IntegerArray:
        """Adds a client's share of the noise and rounds: round(x / g + N(0, share^2) / g) modulo
        2^bits.

        The noise comes from ChaCha20, under a key from the generator that nobody ever sees. The
        whole part of x / g is set aside first. However large it is, the noise is added to the rest
        with all its digits.

        Args:
            vector: The client's vector x.
            rng: The generator of the key.

        Returns:
            The integers.
        """
        stream = Cipher(algorithms.ChaCha20(rng.bytes(32), bytes(16)), mode=None).encryptor()
        integers = np.empty(len(vector), self.kind)
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
            integers[start : start + _BLOCK] = exact.astype(self.kind)
        return integers

    def total(self, numbers: IntegerArray) -> RealArray:
        """Turns summed integers back into numbers.

        Args:
            numbers: The sum modulo 2^bits.

        Returns:
            The sum that they stand for, in float64.
        """
        return (
            numbers.astype(self.kind).view(self.kind.replace("u", "i")).astype(np.float64)
            * self.unit
        )
