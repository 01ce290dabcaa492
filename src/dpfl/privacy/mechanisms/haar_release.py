"""Clip and noise on Haar coefficients: parts of a release, like Flat and Gaussian.

Noise of deviation sigma C / W on the coefficients H is noise of deviation sigma C on W H. A clip of
|W H| to C ("weighted") makes sigma the true multiplier; the published clips, of |H|
("coefficients"), of each level of H ("levels") or of |g| (Flat), leave far less of it.
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
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.clip import (
    Clip,
    Groups,
    check_clip_norm,
    public_median,
    shrink_factors,
    single_group,
)
from dpfl.privacy.mechanisms.haar import Haar
from dpfl.privacy.mechanisms.noise import check_noise_multiplier

if TYPE_CHECKING:
    from torch import Tensor

BOUNDS = ("weighted", "coefficients", "levels")


@lru_cache(maxsize=8)
def _transform(ends: tuple[int, ...]) -> Haar:
    if not ends:
        raise DpflError(
            "A Haar release does not know its model yet; it is fitted to one before the first "
            "round."
        )
    return Haar(ends)


@lru_cache(maxsize=8)
def _weights(ends: tuple[int, ...], name: str, energies: tuple[float, ...]) -> Tensor:
    return _transform(ends).weights(
        name, torch.tensor(energies, dtype=torch.float64) if energies else None
    )


@part("clip.haar", optional=("public",))
@dataclass(frozen=True)
class HaarClip:
    """A bound on a unit's coefficients: on |W H|, or as published on |H|, or on |H| of each level
    (`HaarLevels`).

    With `public` the level is the median on public clients: once where it is of samples, each round
    where it is of updates.
    """

    clip_norm: float
    bound: str = "weighted"
    weights: str = "paper"
    by_layer: bool = False
    energies: tuple[float, ...] = ()
    ends: tuple[int, ...] = ()
    public: bool = False
    bounds = "coefficients"

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)
        if self.bound not in BOUNDS:
            raise DpflError(f"A Haar clip bounds {' or '.join(BOUNDS)}, not {self.bound!r}.")

    @property
    def adapts_to(self) -> str:
        return "public" if self.public else ""

    def adapt(self, public_norms: Sequence[float]) -> HaarClip:
        return replace(self, clip_norm=public_median(public_norms, self.clip_norm))

    def for_model(self, ends: Sequence[int]) -> HaarClip:
        return replace(self, ends=tuple(ends) if self.by_layer else (ends[-1],))

    def groups(self, names: Sequence[str]) -> Groups:
        return single_group(names)

    def norms(self, rows: Tensor) -> Tensor:
        """|W H| or |H| of each row (units, n), in float64."""
        haar, rows = _transform(self.ends), rows.double()
        if self.bound == "weighted" and self.weights != "orthonormal":
            return haar.weighted_norm(rows, _weights(self.ends, self.weights, self.energies))
        return (
            rows.square().sum(1).sqrt()
            if self.bound == "weighted"
            else haar.transform(rows).square().sum(1).sqrt()
        )

    def factors(self, norms: Tensor) -> Tensor:
        return shrink_factors(norms, self.clip_norm)


@part("clip.haar-levels", optional=("public",))
@dataclass(frozen=True)
class HaarLevels(HaarClip):
    """The bound on each level of H by itself (wavelet paper, section 4.3)."""

    bound: str = "levels"

    def clipped(self, rows: Tensor) -> Tensor:
        """Each row inside its bounds, in float64."""
        haar = _transform(self.ends)
        levels = torch.split(haar.transform(rows.double()), haar.band_sizes.tolist(), dim=1)
        inside = [
            level * shrink_factors(level.square().sum(1, keepdim=True).sqrt(), self.clip_norm)
            for level in levels
        ]
        return haar.inverse(torch.cat(inside, dim=1))


@part("noise.haar")
@dataclass(frozen=True)
class HaarNoise:
    """N(0, (multiplier * level / W)^2) on the coefficients, transformed back.

    A paper may count the multiplier and add less: a `portion` of it, or what its Lemma 2 has for m
    coefficients (`lemma`). What is counted here is what is added.
    """

    noise_multiplier: float
    weights: str = "paper"
    by_layer: bool = False
    energies: tuple[float, ...] = ()
    ends: tuple[int, ...] = ()
    lemma: bool = False
    portion: float | None = None

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        if self.lemma and self.by_layer:
            raise DpflError("Lemma 2 is for one transform of the whole vector: leave by_layer out.")
        if self.portion is not None and not 0 < self.portion < math.inf:
            raise DpflError(
                f"The portion of the noise that is added must be above 0, not {self.portion}."
            )

    @property
    def share(self) -> float:
        """What is added of the noise that the multiplier states: sqrt(2 / (2 + log2 m)) by Lemma
        2.
        """
        factor = (
            math.sqrt(2 / (2 + math.log2(_transform(self.ends).coefficients)))
            if self.lemma
            else 1.0
        )
        return factor * (self.portion or 1.0)

    def for_model(self, ends: Sequence[int]) -> HaarNoise:
        return replace(self, ends=tuple(ends) if self.by_layer else (ends[-1],))

    def effective(self, clip: Clip) -> float:
        """The multiplier that an accountant may count with."""
        if isinstance(clip, HaarClip) and clip.bound == "weighted":
            own, others = (
                (part.weights, part.by_layer, part.energies, part.ends) for part in (self, clip)
            )
            if own != others:
                raise DpflError(
                    "Haar noise and its clip must have the same weights; give both the same."
                )
            return self.noise_multiplier * self.share
        kind = clip.bound if isinstance(clip, HaarClip) else "gradient"
        weights = _weights(self.ends, self.weights, self.energies)
        return _transform(self.ends).effective_multiplier(
            self.noise_multiplier * self.share, weights, kind
        )

    def energy(self, size: int) -> float:
        """Every element has one coefficient of each level above it, and so the same variance."""
        haar = _transform(self.ends)
        return (
            size
            * self.share**2
            * haar.noise_variance(_weights(self.ends, self.weights, self.energies))
            / haar.coefficients
        )

    def vector(self, size: int, stddev: float, rng: np.random.Generator) -> Tensor:
        haar = _transform(self.ends)
        if self.ends[-1] != size:
            raise DpflError(f"This Haar noise is for {self.ends[-1]} numbers, not for {size}.")
        return haar.noise(
            _weights(self.ends, self.weights, self.energies), self.share * stddev, rng
        )

    def outward(self, vector: Tensor) -> Tensor:
        """W H of a vector: on these numbers, padding included, the noise has one deviation."""
        return _transform(self.ends).transform(vector.double()) * _weights(
            self.ends, self.weights, self.energies
        )

    def inward(self, weighted: Tensor) -> Tensor:
        return _transform(self.ends).inverse(
            weighted / _weights(self.ends, self.weights, self.energies)
        )

    def standard(self, noise: Tensor, stddev: float) -> Tensor:
        """The coefficients of such noise over their deviations: independent and standard normal,
        where nothing is padded.
        """
        weights = _weights(self.ends, self.weights, self.energies)
        return _transform(self.ends).transform(noise) * weights / (self.share * stddev)
