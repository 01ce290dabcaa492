"""Images of dead leaves: shapes of all sizes that fall on each other.

They have the edges and the spectrum of photographs, and are drawn from a fixed seed. So features
made from them need no data.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

IMAGES = 600
LEAVES = 60
"""The number of leaves of an image."""
SMALLEST, TAIL = 2.0, 1.8
"""The law of the radii r in pixels: there are as many beyond r as (r / SMALLEST)^(-TAIL)."""
COLOUR = 0.35
"""The strength of a leaf's colour, relative to its brightness."""
SLOPE = 0.5
"""The slope of the brightness from the middle of a leaf to its edge."""
SHARPNESS = 3.0
"""The sharpness of edges, which are a third of a pixel wide."""


def leaf_images(shape: tuple[int, ...], count: int = IMAGES) -> Tensor:
    """Draws random images, each of mean 0 and variance 1.

    Args:
        shape: The shape of an image: channels, height, width.
        count: The number of images.

    Returns:
        The images, the same ones every time.
    """
    channels, height, width = shape
    randomness = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)), indexing="ij")

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, 1, generator=randomness)

    def normal(size: int = 1) -> Tensor:
        return torch.randn(count, size, 1, 1, generator=randomness)

    images = (normal() + COLOUR * normal(channels)).expand(count, channels, height, width)
    for _ in range(LEAVES):
        radius = (SMALLEST * uniform(1e-3, 1) ** (-1 / TAIL)).clamp(max=max(height, width))
        down, across, angle = (
            y - uniform(-4, height + 4),
            x - uniform(-4, width + 4),
            uniform(0, math.pi),
        )
        u = (across * angle.cos() + down * angle.sin()) / radius
        v = (down * angle.cos() - across * angle.sin()) / (radius * uniform(0.3, 1))
        round_or_square = torch.where(
            uniform(0, 1) < 0.5, (u.square() + v.square()).sqrt(), torch.maximum(u.abs(), v.abs())
        )
        coverage = torch.sigmoid(SHARPNESS * radius * (1 - round_or_square))
        leaf = normal() + COLOUR * normal(channels) + SLOPE * (normal() * u + normal() * v)
        images = images + coverage * (leaf - images)
    return (images - images.mean((1, 2, 3), keepdim=True)) / images.std((1, 2, 3), keepdim=True)
