"""The Haar transform of a gradient (wavelet paper, section 4.3), its weights, and what they are
worth.

Coefficients are means and half-differences, unnormalised, in the paper's order: the mean of
everything, then the finest level (pairs) up to the coarsest. A coefficient over s elements has
*support* s, and sqrt(s) times it is the coefficient of the orthonormal transform. Noise of
deviation sigma C / W on the coefficients H is noise of deviation sigma C on W H, so the
norm of W H has to stay within C. The paper bounds |H| or |g| instead, and adds far less noise than
its guarantee needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dpfl.bad_values import unknown_name
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector

if TYPE_CHECKING:
    from torch import Tensor

CLIPS = ("coefficients", "gradient", "levels")
"""What the paper bounds: |H| in Algorithm 1, |g| in Algorithm 2, each level of H by itself in the
text of section 4.3.
"""

FLOOR = 1e-6
"""A matched band counts at least this share of the mean energy, so that no weight is infinite."""


def padded_length(length: int) -> int:
    """Rounds a length up to a power of two.

    Args:
        length: The length.

    Returns:
        The next power of two.

    Raises:
        DpflError: The length is below 1.
    """
    if length < 1:
        raise DpflError(f"A Haar transform needs at least 1 element, not {length}.")
    return 1 << (length - 1).bit_length()


def transform(vectors: Tensor) -> Tensor:
    """Transforms vectors, padded with zeros up to a power of two m.

    Args:
        vectors: Vectors (..., n).

    Returns:
        The coefficients (..., m).

    Raises:
        DpflError: The vectors are not of floating-point numbers.
    """
    if vectors.ndim == 0 or not vectors.is_floating_point():
        raise DpflError("A Haar transform needs vectors of floating-point numbers.")
    length = vectors.shape[-1]
    means = torch.nn.functional.pad(vectors, (0, padded_length(length) - length))
    levels = []
    while means.shape[-1] > 1:
        first, second = means[..., ::2], means[..., 1::2]
        means, difference = (first + second) / 2, (first - second) / 2
        levels.append(difference)
    return torch.cat([means, *levels], dim=-1)


def inverse(coefficients: Tensor, length: int | None = None) -> Tensor:
    """Transforms coefficients back: x = H_0 + sum of +-H over the chain of ancestors (equation 6).

    Args:
        coefficients: The coefficients (..., m).
        length: How many elements to return; None for all m.

    Returns:
        The first elements of the vectors.

    Raises:
        DpflError: The number of coefficients is not a power of two, or too small.
    """
    size = coefficients.shape[-1] if coefficients.ndim else 0
    if size != padded_length(size) or not 1 <= (length or size) <= size:
        raise DpflError(
            f"{size} Haar coefficients cannot give back {length or size} elements; m must be a "
            "power of two, at least n."
        )
    means, end = coefficients[..., :1], size
    while (level := means.shape[-1]) < size:
        difference = coefficients[..., end - level : end]
        means = torch.stack([means + difference, means - difference], dim=-1).flatten(-2)
        end -= level
    return means[..., :length]


def _bands(length: int) -> list[tuple[int, int]]:
    """Lists (coefficients, support) of the mean, then of each level, for one stretch of this
    length.
    """
    size = padded_length(length)
    return [(1, size)] + [(size >> level, 1 << level) for level in range(1, size.bit_length())]


@dataclass(frozen=True)
class Haar:
    """The transform of a flat vector, one layer at a time. Each layer is padded by itself.

    A *band* is one level of one layer. Bands are counted in the order of the coefficients.

    Attributes:
        ends: Where each layer ends. One end is the whole vector.
    """

    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.ends or any(end <= start for start, end in pairwise((0, *self.ends))):
            raise DpflError(f"The ends of the layers must grow from 1 on, unlike {self.ends}.")

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The length of each layer."""
        return tuple(end - start for start, end in pairwise((0, *self.ends)))

    @cached_property
    def band_sizes(self) -> Tensor:
        """n_b: the number of coefficients of each band."""
        return torch.tensor([count for length in self.lengths for count, _ in _bands(length)])

    @cached_property
    def band_supports(self) -> Tensor:
        """s_b: over how many elements a coefficient of each band goes."""
        supports = [support for length in self.lengths for _, support in _bands(length)]
        return torch.tensor(supports, dtype=torch.float64)

    @property
    def coefficients(self) -> int:
        """m: the number of coefficients, padding included."""
        return int(self.band_sizes.sum())

    @cached_property
    def supports(self) -> Tensor:
        """The support of every coefficient."""
        return self.band_supports.repeat_interleave(self.band_sizes)

    def transform(self, vectors: Tensor) -> Tensor:
        """Transforms vectors.

        Args:
            vectors: Vectors (..., n).

        Returns:
            The coefficients (..., m).
        """
        self._check(vectors, self.ends[-1], "elements")
        return torch.cat(
            [transform(layer) for layer in torch.split(vectors, list(self.lengths), dim=-1)], dim=-1
        )

    def inverse(self, coefficients: Tensor) -> Tensor:
        """Transforms coefficients back.

        Args:
            coefficients: The coefficients (..., m).

        Returns:
            The vectors (..., n).
        """
        self._check(coefficients, self.coefficients, "coefficients")
        layers = torch.split(
            coefficients, [padded_length(length) for length in self.lengths], dim=-1
        )
        return torch.cat(
            [inverse(layer, length) for layer, length in zip(layers, self.lengths, strict=True)],
            dim=-1,
        )

    def weights(self, name: str, energies: Tensor | None = None) -> Tensor:
        """Computes the weight W of every coefficient.

        `paper` is the support itself: [m, then 2^level]. `orthonormal` is its square root: W H is
        an isometry, and the noise is that of plain DP-SGD. `matched` follows the energies of the
        bands.

        Args:
            name: `paper`, `orthonormal` or `matched`.
            energies: The energy of each band, for `matched`.

        Returns:
            The weights in float64.

        Raises:
            DpflError: There are no such weights, or `matched` has no energies.
        """
        match name:
            case "paper":
                return self.supports.clone()
            case "orthonormal":
                return self.supports.sqrt()
            case "matched" if energies is not None:
                return self.match_energies(energies)
            case "matched":
                raise DpflError(
                    "Matched weights need the energy of each band, from public data or from what "
                    "was already released."
                )
        raise unknown_name("kind of Haar weights", name, ("paper", "orthonormal", "matched"))

    def match_energies(self, energies: Tensor) -> Tensor:
        """Computes W = sqrt(s_b) V_b with V_b^2 in proportion to sqrt(n_b / E_b): the least total
        noise.

        The weights are normalised by sum V_b^2 E_b = sum E_b. So the typical gradient keeps its
        norm, and a clip norm means what it means for plain DP-SGD. The total noise variance is
        (sigma C)^2 (sum sqrt(n_b E_b))^2 / sum E_b, against (sigma C)^2 m there. The energies
        choose the noise, so they must be public or already paid for. Without any, the weights are
        orthonormal.

        Args:
            energies: The energy E_b of each band.

        Returns:
            The weights in float64.
        """
        spread = self._spread(energies)
        squares = (self.band_sizes / spread).sqrt()
        squares = squares * spread.sum() / (squares * spread).sum()
        return (self.band_supports * squares).sqrt().repeat_interleave(self.band_sizes)

    def _spread(self, energies: Tensor) -> Tensor:
        values = torch.as_tensor(energies, dtype=torch.float64)
        usable = bool((values >= 0).all() and values.isfinite().all())
        if values.shape != self.band_sizes.shape or not usable:
            raise DpflError(
                f"Energies must be {len(self.band_sizes)} finite numbers from 0 on, one per band."
            )
        total = float(values.sum())
        if total <= 0:
            return self.band_sizes.double()
        return torch.maximum(values, FLOOR * total / self.coefficients * self.band_sizes)

    def energies(self, vectors: Tensor) -> Tensor:
        """Computes E_b: the mean energy of vectors in each band of the orthonormal transform.

        Args:
            vectors: Vectors (..., n).

        Returns:
            The energies, which add up to the mean |g|^2.
        """
        squares = self.transform(vectors).double().square() * self.supports
        squares = squares.reshape(-1, self.coefficients).mean(dim=0)
        bands = torch.arange(len(self.band_sizes)).repeat_interleave(self.band_sizes)
        return torch.zeros(len(self.band_sizes), dtype=torch.float64).index_add_(0, bands, squares)

    def weighted_norm(self, vectors: Tensor, weights: Tensor) -> Tensor:
        """Computes |W H|, which a sound clip bounds. The noise multiplier is then sigma.

        Args:
            vectors: Vectors (..., n).
            weights: The weights W.

        Returns:
            One norm per vector.
        """
        weighted_coefficients = self.transform(vectors) * self._fitting(weights).to(vectors.dtype)
        return weighted_coefficients.square().sum(dim=-1).sqrt()

    def sensitivity(self, weights: Tensor, clip: str, level: float = 1.0) -> float:
        """Bounds |W H| under a published clip: max W for |H|, max W / sqrt(s) for |g|.

        It is exact where no layer is padded. With the paper's weights the constant vector reaches
        both. With padding there are fewer gradients, and it is an upper bound.

        Args:
            weights: The weights W.
            clip: What is clipped: `coefficients`, `gradient` or `levels`.
            level: The clip norm.

        Returns:
            The largest |W H|.

        Raises:
            DpflError: There is no such clip.
        """
        ratios = self._fitting(weights)
        match clip:
            case "coefficients":
                return level * float(ratios.max())
            case "gradient":
                return level * float((ratios / self.supports.sqrt()).max())
            case "levels":
                bands = torch.split(ratios, self.band_sizes.tolist())
                return level * math.sqrt(sum(float(band.max()) ** 2 for band in bands))
        raise unknown_name("clip for Haar noise", clip, CLIPS)

    def effective_multiplier(self, noise_multiplier: float, weights: Tensor, clip: str) -> float:
        """Computes what is left of a noise multiplier under a published clip.

        Args:
            noise_multiplier: The multiplier that the paper accounts for.
            weights: The weights W.
            clip: What is clipped.

        Returns:
            The true multiplier, whatever the clip norm.

        Raises:
            DpflError: The multiplier is not a positive number.
        """
        if not (noise_multiplier > 0 and math.isfinite(noise_multiplier)):
            raise DpflError(
                f"The noise multiplier must be a positive number, not {noise_multiplier}."
            )
        return noise_multiplier / self.sensitivity(weights, clip)

    def noise_variance(self, weights: Tensor) -> float:
        """Computes the total noise variance over the m elements, in units of (sigma C)^2.

        Args:
            weights: The weights W.

        Returns:
            The variance; m for plain DP-SGD.
        """
        return float((self.supports / self._fitting(weights).square()).sum())

    def noise(self, weights: Tensor, stddev: float, rng: np.random.Generator) -> Tensor:
        """Samples noise for one flat vector: N(0, (stddev / W)^2) on the coefficients, transformed
        back.

        Args:
            weights: The weights W.
            stddev: The standard deviation sigma C.
            rng: The generator.

        Returns:
            The noise (n,).
        """
        vector = gaussian_vector(self.coefficients, stddev, rng)
        return self.inverse(vector / self._fitting(weights).to(vector.dtype))

    def _fitting(self, weights: Tensor) -> Tensor:
        self._check(weights, self.coefficients, "weights")
        if weights.ndim != 1 or not bool((weights > 0).all() and weights.isfinite().all()):
            raise DpflError("Haar weights must be finite numbers above 0, one per coefficient.")
        return weights

    @staticmethod
    def _check(vectors: Tensor, size: int, what: str) -> None:
        if vectors.ndim == 0 or vectors.shape[-1] != size:
            raise DpflError(
                f"This Haar transform has {size} {what}, but was given a tensor of shape "
                f"{tuple(vectors.shape)}."
            )
