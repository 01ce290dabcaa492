"""The clipped sums of every task, by each way to compute them, against gradients made sample by
sample.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl import tasks
from dpfl.client.dataset import ClientDataset
from dpfl.client.descent.optimisers import SGD
from dpfl.client.descent.plain_descent import descent
from dpfl.client.task import LocalTraining
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.losses import mean_loss, plain_gradient
from dpfl.gradients.passes.chain import ChainPass
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.gradients.passes.row_pass import RowPass
from dpfl.models import FlatModel
from tests.gradients.gradient_reference import CLASSES, batch, close, compare

COUNT, WIDTH, PLACES = 9, 6, 5

TASKS: list[tuple[Any, Tensor]] = [
    (tasks.MultiClass(3), torch.arange(COUNT) % 3),
    (tasks.MultiClass(3, (1.0, 0.25, 4.0)), torch.arange(COUNT) % 3),
    (tasks.Binary(), (torch.arange(COUNT) % 2).float()),
    (tasks.Binary((0.5, 3.0)), (torch.arange(COUNT) % 2).float()),
    (tasks.MultiLabel(4), (torch.arange(4 * COUNT).view(COUNT, 4) % 3 == 0).float()),
    (tasks.Ordinal(4), torch.arange(COUNT) % 4),
    (tasks.Regression(), torch.linspace(-2, 3, COUNT)),
    (tasks.Regression("huber", centre=1.0, scale=3.0, width=0.4), torch.linspace(-9, 9, COUNT)),
    (tasks.Counts(), torch.arange(COUNT).float() * 3),
    (tasks.Counts(mean=4.0), torch.arange(COUNT).float() * 3),
]
IDS = [f"{task.name}-{number}" for number, (task, _) in enumerate(TASKS)]


def linear(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, outputs))


def mlp(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, 7), nn.Tanh(), nn.Linear(7, outputs))


class Words(nn.Module):
    """Tokens to an embedding, a recurrent layer and scores at every place."""

    def __init__(self, vocabulary: int, recurrent: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 4)
        self.gru = nn.GRU(4, 6, batch_first=True) if recurrent else None
        self.head = nn.Linear(6 if recurrent else 4, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.embedding(x)
        return self.head(self.gru(seen)[0] if self.gru else seen)


def one_by_one(module: nn.Module, task: tasks.Task, x: Tensor, y: Tensor) -> Tensor:
    """A batch of one at a time, by autograd alone."""
    rows = []
    for sample, label in zip(x, y, strict=True):
        loss = task.losses(module(sample[None]), label[None]).sum()
        rows.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
        )
    return torch.stack(rows)


def check(
    module: nn.Module, task: tasks.Task, x: Tensor, y: Tensor, ways: tuple[type[Any], ...]
) -> None:
    rows = one_by_one(module, task, x, y)
    for way in ways:
        computed = ClippedGradients(FlatModel(module, task))
        computed.passes.current = way(computed.model)
        compare(computed, x, y, rows)
        assert isinstance(computed.passes.current, way)


@pytest.mark.parametrize("make", [linear, mlp])
@pytest.mark.parametrize(("task", "y"), TASKS, ids=IDS)
def test_clipped_sums_are_those_of_single_samples(task, y, make):
    torch.manual_seed(0)
    x, _ = batch(COUNT, WIDTH)
    check(make(task.outputs), task, x, y, (ChainPass, LayerPass, RowPass))


@pytest.mark.parametrize(
    ("recurrent", "ways"), [(False, (LayerPass, RowPass)), (True, (LayerPass,))]
)
def test_a_sequence_is_one_sample_and_its_loss_a_mean_over_its_tokens(recurrent, ways):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randint(0, 8, (COUNT, PLACES), generator=generator) for _ in range(2))
    y[0, 2:] = y[1] = -100
    check(Words(8, recurrent), tasks.NextToken(8), x, y, ways)


@pytest.mark.parametrize(("task", "y"), TASKS, ids=IDS)
def test_plain_steps_follow_the_mean_loss_of_the_task(task, y):
    """By hand, and by autograd where the chain is not known."""
    torch.manual_seed(0)
    start, (x, _) = mlp(task.outputs), batch(COUNT, WIDTH)
    ends = []
    for loss_of in (mean_loss, lambda model, x, y: mean_loss(model, x, y)):
        model = FlatModel(mlp(task.outputs), task)
        model.load(FlatModel(start).read())
        way = descent(
            model,
            ClientDataset(x, y, torch.arange(COUNT), COUNT),
            LocalTraining(SGD(0.01), COUNT),
            3,
            loss_of=loss_of,
        )
        losses = list(way([torch.arange(COUNT)] * 3))
        assert losses[0] > losses[-1]
        ends.append(model.read())
    assert close(*ends)


def test_another_loss_is_another_model():
    """Their releases must not share a name, and so their noise."""
    module = linear(1)
    prints = {
        FlatModel(module, task).fingerprint
        for task in (tasks.Binary(), tasks.Binary((1.0, 2.0)), tasks.Counts())
    }
    assert len(prints) == 3


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, 4), nn.BatchNorm2d(4)], ids=str)
def test_plain_gradient_is_the_mean_gradient(norm: nn.Module) -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), norm, nn.Tanh(), nn.Flatten(), nn.Linear(144, CLASSES)
    )
    x, y = batch(7, 1, 8, 8)
    loss = F.cross_entropy(module(x), y)
    expected = torch.cat(
        [gradient.flatten() for gradient in torch.autograd.grad(loss, list(module.parameters()))]
    )
    model = FlatModel(module)
    before = model.read()
    found, value = plain_gradient(model, x, y)
    assert close(found, expected)
    assert value == pytest.approx(float(loss.detach()), rel=1e-5)
    changed = model.vector != before
    assert not changed[: model.layout.trainable].any()
    assert changed[model.layout.trainable :].all()


def test_plain_gradient_of_nothing() -> None:
    gradient, loss = plain_gradient(
        FlatModel(nn.Linear(3, 2)), torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)
    )
    assert torch.equal(gradient, torch.zeros(8))
    assert loss == 0.0
