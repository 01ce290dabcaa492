"""Features of many images, a few at a time, into memory that is taken once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

TOGETHER = 500


def in_parts(images: Tensor, of: Callable[[Tensor], Tensor], size: int) -> Tensor:
    out = images.new_empty(len(images), *of(images[:1]).shape[1:])
    for place, part in zip(out.split(size), images.split(size), strict=True):
        place.copy_(of(part))
    return out


def beside(one: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Two kinds of features as one vector, the other's of a sample stretched to the length of the one's: they count alike."""

    def both(images: Tensor) -> Tensor:
        first, second = one(images).flatten(1), other(images).flatten(1)
        return torch.cat([first, functional.normalize(second) * first.norm(dim=1, keepdim=True)], 1)

    return lambda images: in_parts(images, both, TOGETHER)
