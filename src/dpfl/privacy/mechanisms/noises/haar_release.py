"""Clips and noise on Haar coefficients: parts of a release, as Flat and Gaussian are.

Noise of deviation sigma C / W on the coefficients H is noise of deviation sigma C on W H. A clip of
|W H| to C ("weighted") makes sigma the true multiplier. The published clips, of |H|
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
from dpfl.privacy.mechanisms.clips.adaptive_clip import public_median
from dpfl.privacy.mechanisms.clips.clip import (
    Clip,
    VectorClip,
    Weighting,
    check_clip_norm,
    shrink_factors,
)
from dpfl.privacy.mechanisms.noises.additive_noise import AdditiveNoise
from dpfl.privacy.mechanisms.noises.haar import Haar
from dpfl.privacy.mechanisms.noises.noise import check_noise_multiplier

if TYPE_CHECKING:
    from torch import Tensor

BOUNDS = ("weighted", "coefficients", "levels")


@lru_cache(maxsize=8)
def _transform(ends: tuple[int, ...]) -> Haar:
    if not ends:
        raise DpflError(
            "This Haar release does not know its model yet; call for_model on it first."
        )
    return Haar(ends)


@lru_cache(maxsize=8)
def _weights(ends: tuple[int, ...], name: str, energies: tuple[float, ...]) -> Tensor:
    return _transform(ends).weights(
        name, torch.tensor(energies, dtype=torch.float64) if energies else None
    )


@part("clip.haar", optional=("public",))
@dataclass(frozen=True)
class HaarClip(VectorClip):
    """A bound on a unit's coefficients: on |W H|, or as published on |H| or each level of H.

    Attributes:
        clip_norm: The bound C.
        bound: What it bounds: `weighted`, `coefficients` or `levels`.
        weights: The name of the weights W.
        by_layer: Whether each layer is transformed by itself.
        energies: The energies of the bands, for matched weights.
        ends: Where each layer ends; set by `for_model`.
        public: Whether the clip norm is the median on public clients: once for samples, in each
            round for updates.
    """

    clip_norm: float
    bound: str = "weighted"
    weights: str = "paper"
    by_layer: bool = False
    energies: tuple[float, ...] = ()
    ends: tuple[int, ...] = ()
    public: bool = False
    bounds = "coefficients"
    own_measure = True

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)
        if self.bound not in BOUNDS:
            raise DpflError(f"A Haar clip bounds {' or '.join(BOUNDS)}, not {self.bound!r}.")

    @property
    def coefficient_bound(self) -> str:
        """What the clip bounds of the coefficients: `weighted`, `coefficients` or `levels`."""
        return self.bound

    @property
    def weighting(self) -> Weighting | None:
        """The weights W, where the clip is of |W H|; None where it is not."""
        if self.bound != "weighted":
            return None
        return self.weights, self.by_layer, self.energies, self.ends

    @property
    def adapts_to(self) -> str:
        """ "public" if the clip norm follows public clients, else ""."""
        return "public" if self.public else ""

    def adapt(self, public_norms: Sequence[float]) -> HaarClip:
        """Takes the median of public norms as the clip norm.

        Args:
            public_norms: The norms of public units.

        Returns:
            The clip of the next round.
        """
        return replace(self, clip_norm=public_median(public_norms, self.clip_norm))

    def for_model(self, ends: Sequence[int]) -> HaarClip:
        """Fits the clip to a model.

        Args:
            ends: Where each of the model's parameters ends.

        Returns:
            The clip for that model.
        """
        return replace(self, ends=tuple(ends) if self.by_layer else (ends[-1],))

    def norms(self, rows: Tensor) -> Tensor:
        """Measures |W H| or |H| of each row.

        Args:
            rows: The vectors (units, n).

        Returns:
            One norm per row, in float64.
        """
        haar, rows = _transform(self.ends), rows.double()
        if self.bound == "weighted" and self.weights != "orthonormal":
            return haar.weighted_norm(rows, _weights(self.ends, self.weights, self.energies))
        return (
            rows.square().sum(1).sqrt()
            if self.bound == "weighted"
            else haar.transform(rows).square().sum(1).sqrt()
        )


@part("clip.haar-levels", optional=("public",))
@dataclass(frozen=True)
class HaarLevels(HaarClip):
    """The bound on each level of H by itself (wavelet paper, section 4.3)."""

    bound: str = "levels"
    reshapes = True

    def clip_rows(self, rows: Tensor) -> Tensor:
        """Brings each level of each row inside the bound.

        Args:
            rows: The vectors (units, n).

        Returns:
            The clipped rows, in float64.
        """
        haar = _transform(self.ends)
        levels = torch.split(haar.transform(rows.double()), haar.band_sizes.tolist(), dim=1)
        inside = [
            level * shrink_factors(level.square().sum(1, keepdim=True).sqrt(), self.clip_norm)
            for level in levels
        ]
        return haar.inverse(torch.cat(inside, dim=1))


@part("noise.haar")
@dataclass(frozen=True)
class HaarNoise(AdditiveNoise):
    """N(0, (z C / W)^2) on the coefficients, transformed back.

    A paper may state a multiplier and add less noise. `effective` counts what is added.

    Attributes:
        noise_multiplier: The stated multiplier z.
        weights: The name of the weights W.
        by_layer: Whether each layer is transformed by itself.
        energies: The energies of the bands, for matched weights.
        ends: Where each layer ends; set by `for_model`.
        lemma: Whether the noise is what the paper's Lemma 2 has for m coefficients.
        portion: The portion of the stated noise that is added; None for all.
    """

    noise_multiplier: float
    weights: str = "paper"
    by_layer: bool = False
    energies: tuple[float, ...] = ()
    ends: tuple[int, ...] = ()
    lemma: bool = False
    portion: float | None = None
    gaussian = on_coefficients = True

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
        """The added noise over the stated noise: sqrt(2 / (2 + log2 m)) by Lemma 2."""
        factor = (
            math.sqrt(2 / (2 + math.log2(_transform(self.ends).coefficients)))
            if self.lemma
            else 1.0
        )
        return factor * (self.portion or 1.0)

    def for_model(self, ends: Sequence[int]) -> HaarNoise:
        """Fits the noise to a model.

        Args:
            ends: Where each of the model's parameters ends.

        Returns:
            The noise for that model.
        """
        return replace(self, ends=tuple(ends) if self.by_layer else (ends[-1],))

    def effective(self, clip: Clip) -> float:
        """Computes the multiplier that an accountant may count with.

        Args:
            clip: The clip of the same release.

        Returns:
            The noise that is added, over the largest |W H| that the clip lets through.

        Raises:
            DpflError: If a weighted clip has other weights than the noise.
        """
        if clip.weighting is not None:
            if clip.weighting != (self.weights, self.by_layer, self.energies, self.ends):
                raise DpflError(
                    "Haar noise and its clip must have the same weights; give both the same."
                )
            return self.noise_multiplier * self.share
        weights = _weights(self.ends, self.weights, self.energies)
        return _transform(self.ends).effective_multiplier(
            self.noise_multiplier * self.share, weights, clip.coefficient_bound
        )

    def energy(self, size: int) -> float:
        """Computes E |noise|^2 of a vector in units of variance. Every element has the same
        variance.

        Args:
            size: The number of elements.

        Returns:
            The energy.
        """
        haar = _transform(self.ends)
        return (
            size
            * self.share**2
            * haar.noise_variance(_weights(self.ends, self.weights, self.energies))
            / haar.coefficients
        )

    def vector(self, size: int, stddev: float, rng: np.random.Generator) -> Tensor:
        """Samples the noise of one sum.

        Args:
            size: The number of elements.
            stddev: The stated standard deviation z C.
            rng: The generator.

        Returns:
            The noise.

        Raises:
            DpflError: The noise is for vectors of another length.
        """
        haar = _transform(self.ends)
        if self.ends[-1] != size:
            raise DpflError(f"This Haar noise is for {self.ends[-1]} numbers, not for {size}.")
        return haar.noise(
            _weights(self.ends, self.weights, self.energies), self.share * stddev, rng
        )

    def outward(self, vector: Tensor) -> Tensor:
        """Maps a vector to W H, where the noise has one standard deviation.

        Args:
            vector: The vector (n,).

        Returns:
            W H (m,), padding included.
        """
        return _transform(self.ends).transform(vector.double()) * _weights(
            self.ends, self.weights, self.energies
        )

    def inward(self, weighted_coefficients: Tensor) -> Tensor:
        """Maps W H back to a vector.

        Args:
            weighted_coefficients: W H (m,).

        Returns:
            The vector (n,).
        """
        return _transform(self.ends).inverse(
            weighted_coefficients / _weights(self.ends, self.weights, self.energies)
        )

    def standard(self, noise: Tensor, stddev: float) -> Tensor:
        """Divides the coefficients of such noise by their standard deviations.

        Args:
            noise: The noise (n,).
            stddev: The stated standard deviation.

        Returns:
            Independent standard normal numbers where nothing is padded.
        """
        weights = _weights(self.ends, self.weights, self.energies)
        return _transform(self.ends).transform(noise) * weights / (self.share * stddev)
