"""Modules that several tests of clipped sums share."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.gradients.gradient_reference import CLASSES


class Twice(nn.Module):
    """Calls one of its layers twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(self.inner(x).tanh()))


class Own(nn.Module):
    """Has a parameter outside of any layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(5) * 0.7), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * self.scale)


class Dropping(nn.Module):
    """Draws in its forward pass, by a layer that is known as part of a chain only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(self.first(x), 0.5, self.training))
