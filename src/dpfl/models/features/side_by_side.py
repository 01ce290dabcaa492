"""Two kinds of features as one vector."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from dpfl.models.row_sizes import RowFunction

TOGETHER = 500


def beside(
    one: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Puts two kinds of features side by side.

    The other's are stretched to the length of the one's for each sample, so that both count alike.

    Args:
        one: Maps images to features.
        other: Likewise.

    Returns:
        A function that maps images to both.
    """

    def both(images: Tensor) -> Tensor:
        first, second = one(images).flatten(1), other(images).flatten(1)
        return torch.cat([first, functional.normalize(second) * first.norm(dim=1, keepdim=True)], 1)

    return RowFunction(both, TOGETHER)
