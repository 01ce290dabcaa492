"""Plain SGD three ways: whichever is taken, it is SGD."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dpfl.client.dataset import ClientDataset
from dpfl.client.descent import plain_descent as ways
from dpfl.client.descent.optimisers import SGD, Momentum
from dpfl.client.descent.plain_descent import descent
from dpfl.client.task import LocalTraining
from dpfl.models import FlatModel

CLASSES = 4


def dense(width: int = 9, bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(48, width, bias=bias),
        nn.Tanh(),
        nn.Linear(width, 5),
        nn.ReLU(),
        nn.Linear(5, CLASSES),
    )


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(6, 4, 1, groups=2, bias=False),
        nn.Flatten(),
        nn.Linear(4, CLASSES),
    )


def samples(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, 4, 4, generator=generator), torch.randint(
        CLASSES, (count,), generator=generator
    )


def batches_of(count: int, size: int, steps: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randperm(count, generator=generator)[:size] for _ in range(steps)]


def reference(
    module: nn.Module, x: Tensor, y: Tensor, batches: list[Tensor], rate: float
) -> tuple[Tensor, list[float]]:
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimiser, losses = torch.optim.SGD(trained, lr=rate), []
    for batch in batches:
        optimiser.zero_grad()
        loss = F.cross_entropy(module(x[batch]), y[batch])
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return torch.cat([parameter.detach().flatten() for parameter in trained]), losses


def walked(
    build: Callable[[], nn.Module], count: int, size: int, steps: int, rate: float = 0.2
) -> tuple[Tensor, object]:
    """How the model ends, checked against the reference, and the way that was taken."""
    x, y = samples(count)
    rows = torch.arange(count).flip(0)
    model, batches = FlatModel(build()), batches_of(count, size, steps)
    way = descent(
        model,
        ClientDataset(x.flip(0), y.flip(0), rows, len(rows)),
        LocalTraining(SGD(rate), size),
        steps,
    )
    losses = list(way(iter(batches)))
    vector, expected = reference(build(), x, y, batches, rate)
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert torch.allclose(model.read(), vector, atol=2e-6, rtol=1e-5)
    return model.read(), way.func  # type: ignore[attr-defined]


@pytest.mark.parametrize("bias", [True, False])
def test_a_client_with_few_samples_walks_in_the_dual_of_its_first_layer(bias: bool) -> None:
    assert walked(lambda: dense(60, bias), count=8, size=8, steps=12)[1] is ways._in_dual


def test_a_client_with_many_samples_walks_in_place() -> None:
    assert walked(dense, count=60, size=4, steps=3)[1] is ways._in_place


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 10), st.integers(1, 40))
def test_any_way_is_sgd(count: int, size: int, steps: int, width: int) -> None:
    walked(lambda: dense(width), count, min(size, count), steps)


def test_convolutions_walk_in_place() -> None:
    assert walked(convolutional, count=12, size=5, steps=4)[1] is ways._in_place


def test_frozen_parameters_do_not_move() -> None:
    def half_frozen() -> nn.Module:
        module = dense(60)
        module[1].bias.requires_grad_(False)
        module[3].weight.requires_grad_(False)
        return module

    assert walked(half_frozen, count=8, size=8, steps=12)[1] is ways._in_place


def test_other_optimisers_take_the_gradient_vector() -> None:
    x, y = samples(10)
    way = descent(
        FlatModel(dense()),
        ClientDataset(x, y, torch.arange(10), 10),
        LocalTraining(Momentum(0.1), 5),
        3,
    )
    assert way.func is ways._by_autograd  # type: ignore[attr-defined]


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = dense()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * 2


def test_models_that_are_no_chain_walk_by_autograd() -> None:
    assert walked(Own, count=12, size=5, steps=4)[1] is ways._by_autograd
