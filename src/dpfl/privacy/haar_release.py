"""Clip and noise on Haar coefficients: parts of a release, like Flat and Gaussian.

Noise of deviation sigma C / W on the coefficients H is noise of deviation sigma C on W H. A clip of |W H| to C ("weighted")
makes sigma the true multiplier; the published clips, of |H| ("coefficients") or of |g| (Flat), leave far less of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpfl.errors import DpflError
from dpfl.lazy import torch
from dpfl.privacy.clip import Clip, Groups, check_level, shrink, together
from dpfl.privacy.haar import Haar
from dpfl.privacy.noise import check_multiplier

if TYPE_CHECKING:
    from torch import Tensor

BOUNDS = ("weighted", "coefficients")


@lru_cache(maxsize=8)
def _transform(ends: tuple[int, ...]) -> Haar:
    if not ends:
        raise DpflError("A Haar release does not know its model yet; it is fitted to one before the first round.")
    return Haar(ends)


@lru_cache(maxsize=8)
def _weights(ends: tuple[int, ...], name: str, energies: tuple[float, ...]) -> Tensor:
    return _transform(ends).weights(name, torch.tensor(energies, dtype=torch.float64) if energies else None)


@dataclass(frozen=True)
class HaarClip:
    """A bound on a unit's coefficients: on |W H|, or as published on |H|."""

    level: float
    bound: str = "weighted"
    weights: str = "paper"
    by_layer: bool = False
    energies: tuple[float, ...] = ()
    ends: tuple[int, ...] = ()
    bounds = "coefficients"
    adapts_to = ""

    def __post_init__(self) -> None:
        check_level(self.level)
        if self.bound not in BOUNDS:
            raise DpflError(f"A Haar clip bounds {' or '.join(BOUNDS)}, not {self.bound!r}.")

    def fitted(self, ends: Sequence[int]) -> HaarClip:
        return replace(self, ends=tuple(ends) if self.by_layer else (ends[-1],))

    def groups(self, names: Sequence[str]) -> Groups:
        return together(names)

    def norms(self, rows: Tensor) -> Tensor:
        """|W H| or |H| of each row (units, n)."""
        haar = _transform(self.ends)
        if self.bound == "weighted" and self.weights != "orthonormal":
            return haar.weighted_norm(rows, _weights(self.ends, self.weights, self.energies))
        return rows.square().sum(1).sqrt() if self.bound == "weighted" else haar.transform(rows).square().sum(1).sqrt()

    def factors(self, norms: Tensor) -> Tensor:
        return shrink(norms, self.level)


@dataclass(frozen=True)
class HaarNoise:
    """N(0, (multiplier * level / W)^2) on the coefficients, transformed back."""

    multiplier: float
    weights: str = "paper"
    by_layer: bool = False
    energies: tuple[float, ...] = ()
    ends: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)

    def fitted(self, ends: Sequence[int]) -> HaarNoise:
        return replace(self, ends=tuple(ends) if self.by_layer else (ends[-1],))

    def effective(self, clip: Clip) -> float:
        """The multiplier that an accountant may count with."""
        if isinstance(clip, HaarClip) and clip.bound == "weighted":
            own, others = ((part.weights, part.by_layer, part.energies, part.ends) for part in (self, clip))
            if own != others:
                raise DpflError("Haar noise and its clip must have the same weights; give both the same.")
            return self.multiplier
        kind = "coefficients" if isinstance(clip, HaarClip) else "gradient"
        weights = _weights(self.ends, self.weights, self.energies)
        return _transform(self.ends).effective_multiplier(self.multiplier, weights, kind)

    def energy(self, size: int) -> float:
        """Every element has one coefficient of each level above it, and so the same variance."""
        haar = _transform(self.ends)
        return size * haar.noise_variance(_weights(self.ends, self.weights, self.energies)) / haar.coefficients

    def vector(self, size: int, deviation: float, rng: np.random.Generator) -> Tensor:
        haar = _transform(self.ends)
        if self.ends[-1] != size:
            raise DpflError(f"This Haar noise is for {self.ends[-1]} numbers, not for {size}.")
        return haar.noise(_weights(self.ends, self.weights, self.energies), deviation, rng)

    def outward(self, vector: Tensor) -> Tensor:
        """W H of a vector: on these numbers, padding included, the noise has one deviation."""
        return _transform(self.ends).transform(vector.double()) * _weights(self.ends, self.weights, self.energies)

    def inward(self, weighted: Tensor) -> Tensor:
        return _transform(self.ends).inverse(weighted / _weights(self.ends, self.weights, self.energies))

    def standard(self, noise: Tensor, deviation: float) -> Tensor:
        """The coefficients of such noise over their deviations: independent and standard normal, where nothing is padded."""
        return _transform(self.ends).transform(noise) * _weights(self.ends, self.weights, self.energies) / deviation
