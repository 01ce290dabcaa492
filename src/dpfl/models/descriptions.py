"""Two kinds of features as one."""

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
    """Two kinds of features as one vector, the other's of a sample stretched to the length of the
    one's: they count alike.
    """

    def both(images: Tensor) -> Tensor:
        first, second = one(images).flatten(1), other(images).flatten(1)
        return torch.cat([first, functional.normalize(second) * first.norm(dim=1, keepdim=True)], 1)

    return RowFunction(both, TOGETHER)
