"""Patch features (Coates, Lee and Ng 2011) without data: how much each part of an image is like
patches of dead leaves.

Every patch of an image is brought to mean 0 and variance 1, whitened, and compared with whitened
patches of images that are drawn from a fixed seed. What is beyond a threshold is averaged over the
cells of a grid; its square root, normalised within the sample, is the feature. Every sample is
transformed by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from dpfl.errors import DpflError
from dpfl.models.features.leaf_images import leaf_images
from dpfl.models.row_sizes import RowFunction

SIDE = 6
"""The side of a patch, in pixels."""
STRIDE = 2
GRID = 4
"""Cells per side over which patches are averaged."""
FLAT = 0.05
"""The share of the image's variance that is added to a patch's own, so that a patch with less
variance is scaled to nearly nothing.
"""
TINY = 1e-9
"""A number that keeps an image of one colour from a division by 0."""
RIDGE = 0.01
"""A share of the mean eigenvalue. Directions below it are not raised further in whitening."""
THRESHOLD = 0.5
LEAST = 0.01
"""A number that is added to a feature's mean under the root."""
LEAF_SIDE = 32
"""Pixels per side of the images from which patches are drawn, whatever the size of the samples."""
PIXELS = 51_200
"""Pixels of the images that are computed at a time, so that the memory that they need stays small.
"""


@lru_cache(maxsize=4)
def patch_features(
    shape: tuple[int, ...], mirror: bool, filters: int
) -> Callable[[Tensor], Tensor]:
    """Computes features of images by random patches.

    Args:
        shape: The shape of an image: channels, height, width.
        mirror: Whether an image and its mirror image have the same features. Then half of the
            columns say all.
        filters: The number of patches.

    Returns:
        A function that maps images to features (n, filters, GRID, GRID).

    Raises:
        DpflError: The images are too small.
    """
    if len(shape) != 3 or min(shape[1:]) < SIDE + GRID * STRIDE:
        raise DpflError(
            "Patch features take images of shape (channels, height, width) with sides of at least "
            f"{SIDE + GRID * STRIDE}, "
            f"but a sample has shape {shape}."
        )
    box = torch.full((1, shape[0], SIDE, SIDE), 1 / (shape[0] * SIDE**2))
    columns = (GRID + 1) // 2 if mirror else GRID

    def of(images: Tensor) -> Tensor:
        if not len(images):
            return images.new_zeros(0, filters, GRID, columns)
        kernels = patch_filters(shape[0], filters)
        mean = functional.conv2d(images, box, stride=STRIDE)
        variance = functional.conv2d(images.square(), box, stride=STRIDE) - mean.square()
        whole = (
            (images - images.mean((1, 2, 3), keepdim=True)).square().mean((1, 2, 3), keepdim=True)
        )
        scale = (variance.clamp(min=0) + FLAT * whole + TINY).rsqrt()
        values = _pool(images, kernels, scale)
        if mirror:
            values = ((values + _pool(images, kernels.flip(-1), scale).flip(-1)) / 2)[..., :columns]
        return _normalise((values + LEAST).sqrt())

    return RowFunction(of, max(1, PIXELS // (shape[1] * shape[2])))


def _normalise(features: Tensor) -> Tensor:
    """Scales all of a sample to mean 0 and variance 1."""
    return functional.group_norm(features, 1) if len(features) else features


def _pool(images: Tensor, kernels: Tensor, scale: Tensor) -> Tensor:
    """Computes the mean over each cell of what is beyond the threshold."""
    alike = functional.conv2d(images, kernels, stride=STRIDE) * scale
    return functional.adaptive_avg_pool2d((alike - THRESHOLD).relu_(), GRID)


@lru_cache(maxsize=4)
def patch_filters(channels: int, filters: int) -> Tensor:
    """Computes kernels that compare a patch with patches of dead leaves, both whitened.

    Args:
        channels: The channels of an image.
        filters: The number of kernels.

    Returns:
        Kernels (filters, channels, SIDE, SIDE), each of mean 0.
    """
    patches = (
        functional.unfold(leaf_images((channels, LEAF_SIDE, LEAF_SIDE)), SIDE, stride=3)
        .transpose(1, 2)
        .flatten(0, 1)
    )
    patches = patches - patches.mean(1, keepdim=True)
    patches = patches * (patches.square().mean(1, keepdim=True) + FLAT).rsqrt()
    values, vectors = torch.linalg.eigh((patches.T @ patches / len(patches)).double())
    whitening = (
        vectors * (values.clamp(min=0) + RIDGE * values.mean()).rsqrt() @ vectors.T
    ).float()
    places = torch.randperm(len(patches), generator=torch.Generator().manual_seed(0))[:filters]
    values = functional.normalize(patches[places] @ whitening) @ whitening
    return (values - values.mean(1, keepdim=True)).unflatten(1, (channels, SIDE, SIDE))
