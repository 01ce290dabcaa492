"""The scattering transform (Bruna and Mallat 2013): features that need no training, so no privacy.

S x = (x * phi, |x * psi_j| * phi, ||x * psi_j| * psi_k| * phi) for scales j < k < J and L angles
each, on a grid 2^J times as coarse. psi are Morlet wavelets, a wave under a Gaussian minus the
Gaussian that makes its mean zero; phi is a Gaussian. Images are continued by reflection, then
convolved on the torus by FFT. Moduli are computed on the grid of their scale, which moves a value
by a few per cent at most. Every sample is transformed by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from dpfl.errors import DpflError
from dpfl.models.features.decorrelate import decorrelating
from dpfl.models.row_sizes import RowFunction

WIDTH = 0.8
"""The width of the finest Gaussian, in pixels. It doubles from scale to scale."""
FREQUENCY = 3 * math.pi / 4
"""The frequency of the finest wave. It halves from scale to scale."""
GROUP = 3
"""Channels that are normalised together."""
BATCH = 16
"""Images that are computed at a time, so that all that they need stays in the cache."""


class Scattering:
    """Maps images to C (1 + J L + L^2 J (J - 1) / 2) channels on a grid 2^J times as coarse.

    Args:
        J: The number of scales.
        L: The number of angles.
        shape: The height and width of an image, multiples of 2^J.

    Raises:
        DpflError: The sides are no such multiples.
    """

    def __init__(self, J: int = 2, L: int = 8, shape: tuple[int, int] = (28, 28)) -> None:
        step = 2**J
        if J < 1 or L < 1 or any(side % step or side <= step for side in shape):
            raise DpflError(
                f"Scattering at {J} scales takes images whose sides are multiples of {step}, not "
                f"{shape}."
            )
        self.J, self.L, self.shape, self.pad = J, L, tuple(shape), step
        padded_shape = (shape[0] + 2 * step, shape[1] + 2 * step)
        self.psi, self.phi = _filters(J, L, padded_shape)

    @property
    def channels(self) -> int:
        """The number of features of each channel of an image."""
        return 1 + self.J * self.L + self.L**2 * self.J * (self.J - 1) // 2

    def __call__(self, x: Tensor) -> Tensor:
        """Transforms images.

        Args:
            x: Images (n, channels, height, width).

        Returns:
            Features (n, channels, height, width) on the coarse grid.

        Raises:
            DpflError: The images have another size.
        """
        if x.dim() != 4 or tuple(x.shape[2:]) != self.shape:
            raise DpflError(
                f"This scattering takes images of {self.shape}, but got a tensor of shape "
                f"{tuple(x.shape)}."
            )
        sides = [side // self.pad for side in self.shape]
        if not len(x):
            return x.new_zeros(0, x.shape[1] * self.channels, *sides)
        parts = [self._of(part) for part in x.flatten(0, 1).split(BATCH)]
        return torch.cat(parts).reshape(len(x), -1, *sides)

    def mirror(self, features: Tensor) -> Tensor:
        """Computes the features of the mirror images, apart from the grid on which they are read
        off.

        Columns and angles are turned round.

        Args:
            features: The features of images.

        Returns:
            Those of the mirror images.
        """
        first = [0, *range(self.L - 1, 0, -1)]
        pairs = [self.L * a + b for a in first for b in first]
        orders = [[0], *[first] * self.J, *[pairs] * (self.J * (self.J - 1) // 2)]
        starts = accumulate([0, *(len(order) for order in orders)])
        angle_order = [
            start + place for start, order in zip(starts, orders, strict=False) for place in order
        ]
        return features.unflatten(1, (-1, self.channels))[:, :, angle_order].flatten(1, 2).flip(-1)

    def _of(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.fft2(functional.pad(x[:, None], (self.pad,) * 4, mode="reflect"))
        orders = [[self._smooth(spectrum, 0)], [], []]
        for j in range(self.J):
            first = self._waves(spectrum, j, 0)
            orders[1].append(self._smooth(first, j))
            for k in range(j + 1, self.J):
                orders[2].append(
                    self._smooth(self._waves(first[:, :, None], k, j).flatten(1, 2), k)
                )
        return torch.cat([part for order in orders for part in order], dim=1)

    def _waves(self, spectrum: Tensor, j: int, at: int) -> Tensor:
        """Computes the spectrum of |x * psi_j| at all angles, on a grid 2^j times as coarse.

        x is given on a grid 2^at times as coarse.
        """
        values = torch.fft.ifft2(_coarser(spectrum * self.psi[j][at], 2 ** (j - at)))
        return torch.fft.fft2(values.abs())

    def _smooth(self, spectrum: Tensor, at: int) -> Tensor:
        """Computes x * phi on the coarsest grid, without the margin that was padded."""
        values = torch.fft.ifft2(_coarser(spectrum * self.phi[at], 2 ** (self.J - at))).real
        return values[..., 1:-1, 1:-1]


def normalise(features: Tensor) -> Tensor:
    """Brings every three channels of a sample to mean 0 and variance 1 over their places.

    This is a GroupNorm without parameters.

    Args:
        features: The features (n, channels, height, width).

    Returns:
        The same, normalised.
    """
    return (
        functional.group_norm(features, features.shape[1] // GROUP) if len(features) else features
    )


@lru_cache(maxsize=4)
def scattering_features(shape: tuple[int, ...], mirror: bool = False) -> Callable[[Tensor], Tensor]:
    """Computes normalised and decorrelated scattering features.

    Args:
        shape: The shape of an image: channels, height, width.
        mirror: Whether an image and its mirror image have the same features.

    Returns:
        A function that maps images to features.

    Raises:
        DpflError: Samples are no images, or their sides are no multiples of 4.
    """
    if len(shape) != 3:
        raise DpflError(
            "Scattering takes images of shape (channels, height, width), but a sample has shape "
            f"{shape}."
        )
    transform = Scattering(shape=shape[1:])

    def alike(images: Tensor) -> Tensor:
        """Computes features that mirror images share. The mean over an image and its mirror image
        is symmetric itself, so half of the columns are enough.
        """
        values = transform(images)
        if mirror:
            values = ((values + transform.mirror(values)) / 2)[..., : (values.shape[-1] + 1) // 2]
        return normalise(values)

    mixing = cache(lambda: decorrelating(RowFunction(alike, BATCH), shape))

    def mix(images: Tensor) -> Tensor:
        """Mixes the channels. Where there are no images, nothing need be mixed, but the result has
        a shape, too.
        """
        return (
            torch.einsum("dc,nchw->ndhw", mixing(), alike(images)) if len(images) else alike(images)
        )

    return RowFunction(mix, BATCH)


def _coarser(spectrum: Tensor, factor: int) -> Tensor:
    """Computes the spectrum of every factor-th pixel: the mean over the frequencies that become
    one.
    """
    for dimension in (-2, -1) if factor > 1 else ():
        parts = spectrum.chunk(factor, dimension)
        spectrum = sum(parts[1:], parts[0]) / factor
    return spectrum


@lru_cache(maxsize=16)
def _filters(J: int, L: int, shape: tuple[int, int]) -> tuple[list[list[Tensor]], list[Tensor]]:
    """Computes the spectra psi[j][at] of shape (L, ...) and phi[at], on grids 2^at times as coarse
    as the image.
    """
    smooth = torch.fft.fft2(_gaussian(WIDTH * 2 ** (J - 1), 1.0, 0.0, shape))
    waves = [torch.stack([_morlet(j, L, turn, shape) for turn in range(L)]) for j in range(J)]
    scale = _largest_scale(smooth, waves)
    psi = [
        [_coarser(scale * wave, 2**at) * 4**at for at in range(max(1, j))]
        for j, wave in enumerate(waves)
    ]
    phi = [_coarser(smooth, 2**at) * 4**at for at in range(J)]
    return [[_single(wave) for wave in row] for row in psi], [_single(low) for low in phi]


def _single(spectrum: Tensor) -> Tensor:
    """Takes the real part of a spectrum. Filters are even up to conjugation, so their spectra are
    real.
    """
    return spectrum.real.float()


def _largest_scale(smooth: Tensor, waves: list[Tensor]) -> float:
    """Computes the largest factor on the wavelets that adds no energy: |phi|^2 + sum_psi
    (|psi(w)|^2 + |psi(-w)|^2) / 2 <= 1.
    """
    energy = torch.cat(waves).abs().square().sum(0)
    mirror_energy = energy.flip((0, 1)).roll((1, 1), (0, 1))
    room = 1 - smooth.abs().square()
    mean_energy = (energy + mirror_energy) / 2
    return math.sqrt(float((room / mean_energy)[mean_energy > 1e-9].min()))


def _morlet(j: int, L: int, turn: int, shape: tuple[int, int]) -> Tensor:
    angle, slant, width = math.pi * turn / L, 4 / L, WIDTH * 2**j
    envelope = _gaussian(width, slant, angle, shape)
    wave = _gaussian(width, slant, angle, shape, FREQUENCY / 2**j)
    return torch.fft.fft2(wave - envelope * (wave.sum() / envelope.sum()))


def _gaussian(
    width: float, slant: float, angle: float, shape: tuple[int, int], frequency: float = 0.0
) -> Tensor:
    """Computes a Gaussian times a wave on the torus, u along the angle and v across.

    slant / (2 pi width^2) exp(-(u^2 + slant^2 v^2) / (2 width^2) + i frequency u)
    """
    sides = [torch.arange(-3 * side, 3 * side, dtype=torch.float64) for side in shape]
    y, x = torch.meshgrid(*sides, indexing="ij")
    u, v = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    envelope = (
        slant / (2 * math.pi * width**2) * torch.exp(-(u**2 + (slant * v) ** 2) / (2 * width**2))
    )
    whole = envelope * torch.exp(1j * frequency * u)
    return whole.unflatten(1, (6, shape[1])).unflatten(0, (6, shape[0])).sum((0, 2))
