"""Noise that clients share, for a server that sees their sums only: each adds a share, rounded to
whole numbers.

The law of the sum and its proof are in docs/privacy.md (noise shared by clients).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from dpfl.codec import part
from dpfl.errors import DpflError

MIN_GRID_STEPS = 16.0
"""A share's deviation in steps of the grid, at least. By `log_total_variation` a sum of 100 shares
is then the rounding of one normal number to 1e-540: nothing that can be added to a delta, for any
number of coordinates and releases.
"""
_MARK = re.compile(r"shared (\d+)-(\d+)")


@part("noise-shares")
@dataclass(frozen=True)
class NoiseShares:
    """Who shares the noise: every client adds a share, `survivors` shares at least are in every sum
    that is opened, and `colluders` of them may be known to the server.
    """

    survivors: int
    colluders: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.colluders < self.survivors:
            raise DpflError(
                f"Of {self.survivors} survivors with {self.colluders} colluders nobody is left to "
                "hide the others; set "
                "privacy.survivors above privacy.colluders, which is at least 0."
            )

    @property
    def unknown_shares(self) -> int:
        """Shares in a sum that the server cannot subtract, at least."""
        return self.survivors - self.colluders

    @property
    def adversary(self) -> str:
        """Whom the noise is enough against."""
        seen = f"who see sums over at least {self.survivors} clients only"
        if not self.colluders:
            return (
                f"the server and the public, {seen}; not a client, which can subtract its own "
                "share of the noise"
            )
        return f"the server, the public and up to {self.colluders} clients together, {seen}"

    @property
    def mark(self) -> str:
        """By which a ledger knows what has a share of the noise only."""
        return f"shared {self.survivors}-{self.colluders}"

    def share(self, stddev: float) -> float:
        """The deviation of one client's share, such that the unknown shares together have
        `deviation`.
        """
        return stddev / math.sqrt(self.unknown_shares)


def weakest_shares(marked: Iterable[str]) -> NoiseShares | None:
    """What must hold for all releases of these marks; None where each had all of its noise."""
    found = [
        tuple(map(int, match.groups())) for mark in set(marked) if (match := _MARK.fullmatch(mark))
    ]
    return NoiseShares(*(min(numbers) for numbers in zip(*found, strict=True))) if found else None


def log_total_variation(steps: float, shares: int) -> float:
    """The logarithm of a bound on the distance between sum_i round(x_i + n_i) over so many shares
    n_i of deviation `steps`, and the rounding of sum_i x_i + N(0, shares steps^2) + (shares - 1)
    uniform numbers: equation (3) of docs/privacy.md.
    """
    n, s, rate = shares, steps, (math.pi * steps) ** 2 / 2
    lines = [
        (2 * j + 1, math.exp(-rate * ((2 * j + 1) ** 2 - 1))) for j in range(8)
    ]  # over exp(-rate), which may underflow
    r = 2 * sum(weight for _, weight in lines)
    r1 = 2 * sum(weight * (1 + s * s * math.pi * odd) for odd, weight in lines)
    return -rate + math.log(0.888 * math.hypot((n + 1) * r, n * (2 * r1 + n * (1 + s) * r)))
