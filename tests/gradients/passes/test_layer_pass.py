"""Models whose layers all have a rule, however they use their layers."""

import pytest
from torch import Tensor, nn

from dpfl.gradients.passes.layer_pass import LayerPass
from tests.gradients.gradient_reference import CLASSES, batch, check
from tests.gradients.modules import Twice

pytestmark = pytest.mark.usefixtures("same_weights")


def test_in_place_activations_do_not_deceive() -> None:
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(36, 6),
        nn.ReLU(inplace=True),
        nn.Linear(6, CLASSES),
    )
    assert isinstance(check(module, *batch(7, 2, 5, 5)).passes.current, LayerPass)
    check(
        nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, CLASSES)),
        *batch(7, 2, 5),
    )


def test_a_linear_layer_may_be_called_several_times() -> None:
    assert isinstance(check(Twice(), *batch(7, 5)).passes.current, LayerPass)


def test_an_unused_layer_has_a_zero_gradient() -> None:
    class Spare(Twice):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(x)

    assert isinstance(check(Spare(), *batch(7, 5)).passes.current, LayerPass)


def test_frozen_parameters_are_left_out() -> None:
    module = nn.Sequential(
        nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, CLASSES), nn.Tanh(), nn.Linear(CLASSES, CLASSES)
    )
    module[0].requires_grad_(False)
    module[2].bias.requires_grad_(False)
    module[4].weight.requires_grad_(False)
    assert isinstance(check(module, *batch(7, 5)).passes.current, LayerPass)


def test_a_module_that_calls_view_on_images() -> None:
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 3, 3), nn.Linear(27, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.conv(x).view(len(x), -1))

    assert isinstance(check(Viewing(), *batch(7, 2, 5, 5)).passes.current, LayerPass)
