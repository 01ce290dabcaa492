"""Noise that later rounds take back: a part of a release, like Gaussian, for a run that is one
release as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.matrix import BandedRoot
from dpfl.privacy.mechanisms.noise import check_noise_multiplier, gaussian_vector

if TYPE_CHECKING:
    from torch import Tensor


@lru_cache(maxsize=8)
def _root(rounds: int, bands: int) -> BandedRoot:
    return BandedRoot(rounds, bands)


@part("noise.banded")
@dataclass(frozen=True)
class BandedNoise:
    """z = C^-1 w: round t gets w_t less what it takes back of earlier noise; w is `multiplier`
    times the sensitivity of C x.

    A unit takes part once in every `turns` rounds, so `turns` is also the largest number of bands
    with a proof, and the default.
    """

    noise_multiplier: float
    bands: int | None = None
    rounds: int = 0
    turns: int = 1

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        if self.bands is not None and self.bands < 1:
            raise DpflError(f"Correlated noise needs at least 1 band, not {self.bands}.")
        if self.rounds and self.bands is not None and self.bands > self.turns:
            raise DpflError(
                f"Clients take part every {self.turns} rounds, so noise can be taken back over as "
                f"many bands, not {self.bands}."
            )

    def for_rounds(self, rounds: int, turns: int) -> BandedNoise:
        return replace(self, rounds=rounds, turns=turns)

    @property
    def root(self) -> BandedRoot:
        if not self.rounds:
            raise DpflError(
                "Correlated noise is planned for all rounds of a run; give budget.rounds."
            )
        return _root(self.rounds, min(self.bands or self.turns, self.rounds))

    @property
    def sensitivity(self) -> float:
        """How far C x moves by a unit of norm 1 that takes part whenever it is its turn."""
        return self.root.sensitivity(math.ceil(self.rounds / self.turns), self.turns)

    def vector(self, size: int, stddev: float, rng: np.random.Generator) -> Tensor:
        """w of one round."""
        return gaussian_vector(size, stddev * self.sensitivity, rng)

    def kept(self, past: Sequence[Tensor]) -> list[Tensor]:
        """As much of the noise made so far, the latest first, as later rounds take back."""
        return list(past[: self.root.bands - 1])

    def taking_back(self, fresh: Tensor, past: Sequence[Tensor]) -> Tensor:
        """z_t = w_t - sum_k c_k z_(t-k): of noise alone, so that no sum's last digits are ever
        remembered.
        """
        found = fresh.clone()
        for coefficient, earlier in zip(self.root.coefficients[1:], past, strict=False):
            found.sub_(earlier, alpha=float(coefficient))
        return found
