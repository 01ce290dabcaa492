"""A fixed mixing of feature channels that makes them less alike, without data.

Natural images have spectra that fall like 1 / f, so the channels of their features are correlated.
Noise of equal size in every direction hurts most where a feature hardly varies. A^(-1/4), with A
the channels' covariance on random images of that spectrum, evens them out half way.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

IMAGES = 1500
POWER = 0.25
FLOOR = 1e-3
"""A share of the largest eigenvalue. Directions below it are not raised further."""
COLOUR = 0.3
"""The share of a colour channel's own noise, beside the noise that all channels have in common."""


def pink_images(shape: tuple[int, ...], count: int = IMAGES) -> Tensor:
    """Draws random images with a spectrum of 1 / f, each of mean 0 and variance 1.

    Args:
        shape: The shape of an image: channels, height, width.
        count: The number of images.

    Returns:
        The images, the same ones every time.
    """
    channels, height, width = shape
    white = torch.randn(
        count, channels, 2 * height, 2 * width, generator=torch.Generator().manual_seed(0)
    )
    y, x = torch.meshgrid(
        torch.fft.fftfreq(2 * height), torch.fft.fftfreq(2 * width), indexing="ij"
    )
    frequency = (y.square() + x.square()).sqrt()
    frequency[0, 0] = frequency[0, 1]
    images = torch.fft.ifft2(torch.fft.fft2(white) / frequency).real[..., :height, :width]
    images = images[:, :1] + COLOUR * (images - images[:, :1]) if channels > 1 else images
    return (images - images.mean((1, 2, 3), keepdim=True)) / images.std((1, 2, 3), keepdim=True)


def decorrelating(features: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Tensor:
    """Computes the matrix that mixes the channels of features.

    Args:
        features: Maps images to features (n, channels, height, width).
        shape: The shape of an image.

    Returns:
        The matrix (channels, channels).
    """
    values = features(pink_images(shape)).flatten(2).double()
    values -= values.mean(0)
    covariance = torch.einsum("ncp,ndp->cd", values, values) / (len(values) * values.shape[2])
    values, vectors = torch.linalg.eigh(covariance)
    values = values.clamp(min=FLOOR * float(values.max()))
    return (vectors * (values / values.mean()) ** -POWER @ vectors.T).float()
