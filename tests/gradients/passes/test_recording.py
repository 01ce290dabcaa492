"""Records of a forward pass: their hooks are removed, and calls of no effect count for nothing."""

import pytest
import torch
from torch import Tensor, nn

from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.models import FlatModel
from tests.gradients.gradient_reference import CLASSES, batch, bounds, clip, hooks_of, one_by_one
from tests.gradients.modules import Twice

pytestmark = pytest.mark.usefixtures("same_weights")


def test_a_users_hook_on_a_layer_is_kept_and_counted_in() -> None:
    module = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, CLASSES))
    handle = module[0].register_forward_hook(lambda layer, inputs, output: 3 * output)
    x, y = batch(7, 5)
    rows = one_by_one(module, x, y)
    found = ClippedGradients(FlatModel(module))(x, y, clip(1))
    assert bounds(found.norms[:, 0], rows.norm(dim=1))
    assert list(module[0]._forward_hooks) == [handle.id]


def test_no_hooks_are_left_after_an_exception() -> None:
    class Failing(Twice):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                raise RuntimeError("on purpose")
            return self.head(self.inner(x))

    module = Failing()
    with pytest.raises(RuntimeError, match="on purpose"):
        ClippedGradients(FlatModel(module))(*batch(7, 5), clip(1))
    assert hooks_of(module) == 0


class Frozen(nn.Module):
    """One of its layers is called where nothing is recorded."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.head = nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            inner = self.inner(x)
        return self.head(inner.tanh())


def test_a_layer_that_is_called_without_gradients_has_none() -> None:
    module = Frozen()
    found = ClippedGradients(FlatModel(module))
    rows = torch.cat([rows for _, rows in found.rows(*batch(3, 5))])
    assert not rows[:, :30].any()
    assert rows[:, 30:].any(1).all()


class Unheard(nn.Module):
    """One of its layers is called, and nothing comes of it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.aside, self.head = nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        self.aside(x)
        return self.head(x.tanh())


def test_a_layer_of_which_nothing_comes_has_no_gradient() -> None:
    found = ClippedGradients(FlatModel(Unheard()))
    rows = torch.cat([rows for _, rows in found.rows(*batch(3, 5))])
    assert not rows[:, :30].any()
    assert rows[:, 30:].any(1).all()
    assert isinstance(found.passes.current, LayerPass)
