"""Noise that later rounds take back, as a part of a release that is one for the whole run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.noises.additive_noise import AdditiveNoise
from dpfl.privacy.mechanisms.noises.matrix import BandedRoot
from dpfl.privacy.mechanisms.noises.noise import (
    check_noise_multiplier,
    gaussian_vector,
)

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.privacy.mechanisms.clips.clip import Clip


@lru_cache(maxsize=8)
def _root(rounds: int, bands: int) -> BandedRoot:
    return BandedRoot(rounds, bands)


@part("noise.banded")
@dataclass(frozen=True)
class BandedNoise(AdditiveNoise):
    """z = C^-1 w: round t gets w_t less what it takes back of earlier noise (`matrix.py`).

    A unit takes part once in every `turns` rounds. So `turns` is the largest number of bands with a
    proof, and the default.

    Attributes:
        noise_multiplier: The standard deviation of w over the sensitivity of C x.
        bands: The number of bands; None for `turns`.
        rounds: The rounds of the run; set by `for_rounds`.
        turns: How many rounds are between two participations of a unit.
    """

    noise_multiplier: float
    bands: int | None = None
    rounds: int = 0
    turns: int = 1
    gaussian = by_coordinate = whole_run = True
    can_be_shared = False

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        if self.bands is not None and self.bands < 1:
            raise DpflError(f"Correlated noise needs at least 1 band, not {self.bands}.")
        if self.rounds and self.bands is not None and self.bands > self.turns:
            raise DpflError(
                f"Clients take part every {self.turns} rounds, so noise can be taken back over as "
                f"many bands, not {self.bands}."
            )

    @property
    def banded_noise(self) -> BandedNoise:
        """The noise itself, since later rounds take it back."""
        return self

    def for_rounds(self, rounds: int, turns: int) -> BandedNoise:
        """Fits the noise to a run.

        Args:
            rounds: The rounds of the run.
            turns: How many rounds are between two participations of a unit.

        Returns:
            The noise for that run.
        """
        return replace(self, rounds=rounds, turns=turns)

    @property
    def root(self) -> BandedRoot:
        """The matrix C of the run."""
        if not self.rounds:
            raise DpflError(
                "Correlated noise is planned for all rounds of a run; give budget.rounds."
            )
        return _root(self.rounds, min(self.bands or self.turns, self.rounds))

    @property
    def sensitivity(self) -> float:
        """How far C x moves by a unit of norm 1 that takes part whenever it is its turn."""
        return self.root.sensitivity(math.ceil(self.rounds / self.turns), self.turns)

    def effective(self, clip: Clip) -> float:
        """Computes the multiplier that an accountant may count with.

        Args:
            clip: The clip of the same release, on which it does not depend here.

        Returns:
            The stated multiplier.
        """
        return self.noise_multiplier

    def vector(self, size: int, stddev: float, rng: np.random.Generator) -> Tensor:
        """Samples the independent vector w of one round.

        Args:
            size: The number of coordinates.
            stddev: The multiplier times the clip norm.
            rng: The generator.

        Returns:
            The vector w.
        """
        return gaussian_vector(size, stddev * self.sensitivity, rng)

    def retained_noise(self, past: Sequence[Tensor]) -> list[Tensor]:
        """Selects the noise that later rounds take back.

        Args:
            past: The noise so far, the latest first.

        Returns:
            Its first bands - 1 vectors.
        """
        return list(past[: self.root.bands - 1])

    def correlate(self, fresh: Tensor, past: Sequence[Tensor]) -> Tensor:
        """Computes z_t = w_t - sum_k c_k z_(t-k).

        Only noise enters, so no sum's last digits are ever remembered.

        Args:
            fresh: The independent vector w_t.
            past: The noise so far, the latest first.

        Returns:
            The noise z_t of the round.
        """
        noise = fresh.clone()
        for coefficient, earlier in zip(self.root.coefficients[1:], past, strict=False):
            noise.sub_(earlier, alpha=float(coefficient))
        return noise
