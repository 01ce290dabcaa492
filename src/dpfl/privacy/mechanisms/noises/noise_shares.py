"""Noise that clients share: each adds a part of it inside a secure sum, and the server sees the
sum.

The law of the sum of rounded Gaussian shares, and its proof, are in docs/privacy.md ("Noise shared
by clients").
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
    """The terms on which clients share the noise of a secure sum.

    Every client adds a share of variance sigma^2 / (survivors - colluders). So the shares that the
    server cannot know have variance sigma^2 together.

    Attributes:
        survivors: The least number of shares in any sum that is opened.
        colluders: The most clients whose shares the server may know.
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
        """The least number of shares in a sum that the server cannot subtract."""
        return self.survivors - self.colluders

    @property
    def adversary(self) -> str:
        """Against whom the noise is enough, in words for a statement."""
        view = f"who see sums over at least {self.survivors} clients only"
        if not self.colluders:
            return (
                f"the server and the public, {view}; not a client, which can subtract its own "
                "share of the noise"
            )
        return f"the server, the public and up to {self.colluders} clients together, {view}"

    @property
    def mark(self) -> str:
        """The mark by which a ledger knows a release whose noise is a share only."""
        return f"shared {self.survivors}-{self.colluders}"

    def share(self, stddev: float) -> float:
        """Computes the standard deviation of one client's share: sigma / sqrt(unknown shares).

        Args:
            stddev: The standard deviation sigma that all unknown shares must have together.

        Returns:
            The standard deviation of the share.
        """
        return stddev / math.sqrt(self.unknown_shares)


def weakest_shares(marks: Iterable[str]) -> NoiseShares | None:
    """Finds what must hold for all releases with these marks.

    Args:
        marks: The marks of releases, as ledgers keep them.

    Returns:
        The smallest numbers of survivors and colluders; None if each release had all of its noise.
    """
    numbers = [
        tuple(map(int, match.groups())) for mark in set(marks) if (match := _MARK.fullmatch(mark))
    ]
    return NoiseShares(*(min(column) for column in zip(*numbers, strict=True))) if numbers else None


def log_total_variation(steps: float, shares: int) -> float:
    """Bounds how far a sum of rounded shares is from the rounding of one normal number.

    The proof in docs/privacy.md rests on it, and the tests compare it with exact laws; no run
    computes it. It compares sum_i round(x_i + n_i) over n shares n_i with the rounding of sum_i
    x_i + N(0, n steps^2) + (n - 1) uniform numbers: equation (3) there.

    Args:
        steps: The standard deviation of a share, in steps of the grid.
        shares: The number n of shares.

    Returns:
        The logarithm of a bound on the total variation distance.
    """
    n, s, rate = shares, steps, (math.pi * steps) ** 2 / 2
    lines = [
        (2 * j + 1, math.exp(-rate * ((2 * j + 1) ** 2 - 1))) for j in range(8)
    ]  # over exp(-rate), which may underflow
    r = 2 * sum(weight for _, weight in lines)
    r1 = 2 * sum(weight * (1 + s * s * math.pi * odd) for odd, weight in lines)
    return -rate + math.log(0.888 * math.hypot((n + 1) * r, n * (2 * r1 + n * (1 + s) * r)))
