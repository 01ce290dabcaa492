"""Modules that no rule covers: their gradients are written out, sample by sample."""

import logging
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.gradients.passes.row_pass import RowPass
from tests.gradients.gradient_reference import CLASSES, batch, check
from tests.gradients.modules import Own, Twice

pytestmark = pytest.mark.usefixtures("same_weights")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, CLASSES)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(x).tanh()))


class Borrowing(Twice):
    """Uses a layer's weight besides its call."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x).tanh() @ self.inner.weight)


class Functional(Twice):
    """Never calls the layer, only uses its weight."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x @ self.inner.weight)


class Discarding(Twice):
    """Calls the layer for nothing, and uses its weight."""

    def forward(self, x: Tensor) -> Tensor:
        self.inner(x)
        return self.head(F.linear(x, self.inner.weight, self.inner.bias))


class Folding(Twice):
    """Folds a sequence into the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x.view(-1, 5)).view(len(x), -1, 5).tanh().mean(1))


class SequenceFirst(Twice):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x.transpose(0, 1)).tanh().mean(0))


class Branching(nn.Module):
    """Control flow that depends on a sample, which vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(5)), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = [row * self.scale if float(row.sum()) > 0 else row.sin() * self.scale for row in x]
        return self.head(torch.stack(rows))


class TwoConvolutions(nn.Module):
    """A convolution called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(72, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(self.inner(x).tanh()).flatten(1))


class Subclass(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def normed() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, CLASSES)))


def scaled() -> nn.Module:
    layer = nn.Linear(5, CLASSES)
    layer.forward = lambda x: 3 * F.linear(x, layer.weight, layer.bias)  # type: ignore[method-assign]
    return nn.Sequential(layer)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (Tied, (5,)),
        (Borrowing, (5,)),
        (Functional, (5,)),
        (Discarding, (5,)),
        (Folding, (3, 5)),
        (SequenceFirst, (7, 5)),
        (SequenceFirst, (3, 5)),
        (Own, (5,)),
        (Branching, (5,)),
        (lambda: Subclass(5, CLASSES), (5,)),
        (normed, (5,)),
        (scaled, (5,)),
        (
            lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.Flatten(), nn.Linear(3, CLASSES)),
            (2, 2, 2, 2),
        ),
        (lambda: TwoConvolutions(), (2, 6, 6)),
    ],
)
def test_other_modules_fall_back(
    make: Callable[[], nn.Module], shape: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "dpfl"):
        computed = check(make(), *batch(7, *shape), chunk=4)
    assert isinstance(computed.passes.current, RowPass)
    assert sum("by torch.func" in record.message for record in caplog.records) == 1
    one_at_a_time = sum("one by one" in record.message for record in caplog.records)
    assert one_at_a_time == (1 if make is Branching else 0)
