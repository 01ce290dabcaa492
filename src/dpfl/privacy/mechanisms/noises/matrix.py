"""DP-FTRL by a banded matrix (Choquette-Choo et al. 2023): noise that later rounds take back.

Sums over rounds then carry little of the noise. Let A be the matrix of prefix sums over n rounds.
Its square root is lower-triangular Toeplitz, with 1, 1/2, 3/8, ... down its first column. C is that
root with all but the first `bands` diagonals set to zero. The mechanism releases C x + w for the
sums x of the rounds and independent Gaussian w, and therefore x + C^-1 w, a round at a time. The
whole run is one Gaussian release, and its sensitivity depends on the rounds in which a unit takes
part. One band is ordinary independent noise.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpfl.errors import DpflError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class BandedRoot:
    """The matrix C.

    Attributes:
        rounds: Its size n.
        bands: The number of its diagonals, the main one included.
    """

    rounds: int
    bands: int

    def __post_init__(self) -> None:
        if not 1 <= self.bands <= self.rounds:
            raise DpflError(
                f"The bands must be from 1 to the number of rounds, {self.rounds}, not "
                f"{self.bands}."
            )

    @cached_property
    def coefficients(self) -> np.ndarray:
        """The diagonals of C: c_k = c_(k-1) (2k - 1) / (2k), those of (1 - x)^(-1/2)."""
        k = np.arange(1, self.bands)
        return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])

    @cached_property
    def inverse(self) -> np.ndarray:
        """The n diagonals of C^-1; with all bands 1, -1/2, -1/8, -1/16, ..."""
        diagonals = np.zeros(self.rounds)
        diagonals[0] = 1.0
        for t in range(1, self.rounds):
            reach = min(t, self.bands - 1)
            diagonals[t] = -self.coefficients[1 : reach + 1] @ diagonals[t - reach : t][::-1]
        return diagonals

    @property
    def column_norm(self) -> float:
        """The norm of the first column, which is the largest."""
        return float(np.linalg.norm(self.coefficients))

    def sensitivity(self, participations: int = 1, separation: int | None = None) -> float:
        """Bounds how far C x moves when a unit of norm 1 is added or removed.

        With no more bands than rounds between two participations, the unit's columns do not overlap
        and their squares add up: column norm x sqrt(participations), a little less where the last
        column is cut off.

        Args:
            participations: In how many rounds the unit takes part.
            separation: How many rounds any two of them are apart at least.

        Returns:
            The L2 sensitivity.

        Raises:
            DpflError: If the rounds may be closer than the bands, which has no proof here.
        """
        if participations < 1:
            raise DpflError(f"A unit must take part at least once, not {participations} times.")
        if participations == 1:
            return self.column_norm
        if separation is None or separation < self.bands:
            raise DpflError(
                f"Participations must be at least {self.bands} rounds apart, as many as there are "
                "bands."
            )
        starts = range(0, self.rounds, separation)[
            :participations
        ]  # the earliest rounds have the longest columns
        return math.sqrt(
            sum(float(np.sum(self.coefficients[: self.rounds - start] ** 2)) for start in starts)
        )

    def noise(
        self, draw: Callable[[int], Tensor], start: int = 0, past: Iterable[Tensor] = ()
    ) -> Iterator[Tensor]:
        """Yields the rows of C^-1 w, one per round.

        Args:
            draw: Samples the independent vector w_t of a round, best keyed by the round.
            start: The first round.
            past: The last bands - 1 noise vectors before it, the latest last.

        Returns:
            The noise of each round from `start` on.

        Raises:
            DpflError: The number of earlier vectors does not fit the round.
        """
        memory = deque(past, maxlen=self.bands - 1)
        if not 0 <= start <= self.rounds or len(memory) != min(start, self.bands - 1):
            raise DpflError(
                f"Noise cannot go on from round {start} with {len(memory)} earlier vectors; give "
                "the last bands - 1."
            )
        return self._noise(draw, start, memory)

    def _noise(
        self, draw: Callable[[int], Tensor], start: int, memory: deque[Tensor]
    ) -> Iterator[Tensor]:
        """Solves C z = w from the top: z_t = w_t - sum_k c_k z_(t-k)."""
        for t in range(start, self.rounds):
            vector = draw(t).clone()
            for coefficient, earlier in zip(self.coefficients[1:], reversed(memory), strict=False):
                vector.sub_(earlier, alpha=float(coefficient))
            memory.append(vector)
            yield vector.clone()  # the caller may change it; the memory must not
