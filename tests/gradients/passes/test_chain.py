"""Chains by hand: the same gradients as autograd's, for the models that are chains and for no
others.
"""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import dpfl
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.losses import losses_and_slopes
from dpfl.gradients.passes.chain import Chain, ChainPass
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.gradients.unit_gradients import UnsupportedLayer
from dpfl.models import FlatModel
from tests.gradients.gradient_reference import (
    CLASSES,
    batch,
    check,
    clip,
    close,
    compare,
    one_by_one,
)


def convolutional(activation: nn.Module, pool: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    features = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), activation, pool, nn.Conv2d(6, 4, 2, stride=2), nn.Flatten()
    )
    width = features(torch.zeros(1, 2, 12, 12)).shape[1]
    return nn.Sequential(features, nn.Identity(), nn.Linear(width, CLASSES))


@pytest.mark.parametrize("name", ["mlp", "cnn", "cnn_wide", "alexnet"])
def test_these_models_of_the_catalogue_are_chains(name: str) -> None:
    model = FlatModel(getattr(dpfl.models, name)().build((3, 32, 32), 10, seed=0))
    assert isinstance(ClippedGradients(model).passes.current, ChainPass)


@pytest.mark.parametrize(
    "activation",
    [nn.Tanh(), nn.ReLU(), nn.ReLU(inplace=True), nn.ELU(), nn.GELU(), nn.SiLU(), nn.Sigmoid()],
)
@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(2, stride=1),
        nn.MaxPool2d((3, 2), stride=(2, 1), padding=1, ceil_mode=True),
        nn.MaxPool2d(2, dilation=2),
        nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(4),
        nn.AdaptiveMaxPool2d(4),
    ],
)
def test_a_chain_gives_the_gradients_of_autograd(activation: nn.Module, pool: nn.Module) -> None:
    module = convolutional(activation, pool)
    x, y = batch(7, 2, 12, 12)
    computed = ClippedGradients(FlatModel(module))
    assert isinstance(computed.passes.current, ChainPass)
    compare(computed, x, y, one_by_one(module, x, y))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(1, 2),
    st.booleans(),
    st.sampled_from([0, 1, 5]),
)
def test_chains_of_any_shape(
    widths: list[int], kernel: int, stride: int, padding: int, groups: int, bias: bool, size: int
) -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    channels = 2
    for width in widths:
        layers += [
            nn.Conv2d(channels, groups * width, kernel, stride, padding, groups=groups, bias=bias),
            nn.Tanh(),
        ]
        channels = groups * width
    features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
    module = nn.Sequential(features, nn.Linear(4 * channels, CLASSES, bias=bias))
    x, y = batch(size, 2, 9, 8)
    try:
        rows = one_by_one(module, *batch(1, 2, 9, 8)) if size == 0 else one_by_one(module, x, y)
    except RuntimeError:
        return  # the image is too small for these kernels
    computed = ClippedGradients(FlatModel(module))
    assert isinstance(computed.passes.current, ChainPass)
    compare(computed, x, y, rows[:size])


def frozen() -> nn.Module:
    module = nn.Sequential(
        nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, CLASSES)
    )
    module[0].requires_grad_(False)
    module[2].bias.requires_grad_(False)
    return module


def test_frozen_parameters_stay_and_the_others_have_their_gradients() -> None:
    module = frozen()
    assert isinstance(ClippedGradients(FlatModel(module)).passes.current, ChainPass)
    check(module, *batch(7, 5))


def test_dropout_drops_in_training_only() -> None:
    module = nn.Sequential(nn.Linear(5, 400), nn.Dropout(0.5), nn.Linear(400, CLASSES))
    computed = ClippedGradients(FlatModel(module))
    assert isinstance(computed.passes.current, ChainPass)
    x, y = batch(7, 5)
    one, two = (computed(x, y, clip(1e9)).total for _ in range(2))
    assert not close(one, two)
    torch.manual_seed(3)
    found = computed(x, y, clip(1e9)).total
    torch.manual_seed(3)
    expected = torch.autograd.grad(
        F.cross_entropy(module(x), y, reduction="sum"), list(module.parameters())
    )
    assert close(found, torch.cat([g.flatten() for g in expected]))
    module.eval()
    compare(computed, x, y, one_by_one(module, x, y))


class Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


shared = nn.Linear(5, 5)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(Doubled(5, CLASSES)),
        nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(5, CLASSES)),
        nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Linear(6, CLASSES)),
        nn.Sequential(nn.Linear(5, 6), nn.ELU(inplace=True), nn.Linear(6, CLASSES)),
        nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Flatten(0, 1), nn.Linear(5, CLASSES)),
    ],
)
def test_what_is_no_chain_is_computed_another_way(module: nn.Module) -> None:
    with pytest.raises(UnsupportedLayer):
        Chain(FlatModel(module))
    check(module, *batch(7, 5))


def test_a_hook_that_changes_an_output_is_seen() -> None:
    module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, CLASSES))
    computed = ClippedGradients(FlatModel(module))
    x, y = batch(7, 5)
    computed(x, y, clip(1.0))
    module[1].register_forward_hook(lambda module, inputs, output: 3 * output)
    rows = one_by_one(module, x, y)
    assert close(computed(x, y, clip(1e9)).total, rows.sum(0))
    assert isinstance(computed.passes.current, LayerPass)


def test_a_method_that_was_put_over_forward_is_seen() -> None:
    module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, CLASSES))
    module[1].forward = torch.sin  # type: ignore[method-assign]
    with pytest.raises(UnsupportedLayer):
        Chain(FlatModel(module))
    check(module, *batch(7, 5))


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3)])
def test_losses_and_their_gradient_are_those_of_cross_entropy(shape: tuple[int, ...]) -> None:
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.randint(4, (6, *shape[2:]), generator=torch.Generator().manual_seed(1))
    losses, g = losses_and_slopes(scores.detach(), y)
    expected = F.cross_entropy(scores, y, reduction="none").reshape(6, -1).mean(1)
    assert torch.allclose(losses, expected.detach())
    assert torch.allclose(g, torch.autograd.grad(expected.sum(), scores)[0])
