"""Objectives beside plain cross-entropy, against values by hand, written-out formulas and numeric
differences.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.client.dataset import ClientDataset
from dpfl.client.descent import plain_descent as ways
from dpfl.client.descent.local_training import plain_steps
from dpfl.client.descent.objectives import (
    Contrastive,
    CrossEntropy,
    Objective,
    PerturbedScores,
    contrastive_losses,
    final_layer,
)
from dpfl.client.descent.optimisers import SGD
from dpfl.client.descent.plain_descent import descent
from dpfl.client.task import LocalTraining
from dpfl.errors import DpflError
from dpfl.gradients.losses import plain_gradient
from dpfl.models import FlatModel
from dpfl.privacy import Keyed
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector

X, Y = torch.randn(10, 5, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3
DATA = ClientDataset(X, Y, torch.arange(10), 10)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def elsewhere(seed: int) -> Tensor:
    size = FlatModel(network()).layout.size
    return 0.7 * torch.randn(size, generator=torch.Generator().manual_seed(seed))


def tanh_of(vector: Tensor) -> Tensor:
    """The representations of X under a model, by hand."""
    return torch.tanh(X @ vector[:20].view(4, 5).T + vector[20:24])


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))


# The contrastive loss


@pytest.mark.parametrize(
    ("z", "near", "far", "temperature", "expected"),
    [
        # cos 1 and 0: log(1 + e^-2) at T = 1/2.
        ([2.0, 0.0], [5.0, 0.0], [0.0, 3.0], 0.5, math.log1p(math.exp(-2))),
        # cos 3/5 and 4/5: log(1 + e^0.2) at T = 1.
        ([3.0, 4.0], [1.0, 0.0], [0.0, 9.0], 1.0, math.log1p(math.exp(0.2))),
        # cos -1 and 1, cold: log(1 + e^200) = 200, where e^200 is beyond a float32.
        ([1.0, 1.0], [-1.0, -1.0], [2.0, 2.0], 0.01, 200.0),
        ([1.0, 2.0], [4.0, -1.0], [4.0, -1.0], 0.5, math.log(2)),
    ],
)
def test_the_contrastive_loss_is_that_computed_by_hand(
    z: list[float], near: list[float], far: list[float], temperature: float, expected: float
) -> None:
    found = contrastive_losses(
        torch.tensor([z]), torch.tensor([near]), torch.tensor([far]), temperature
    )
    assert found.tolist() == pytest.approx([expected], rel=1e-5)


def test_the_loss_is_cross_entropy_and_mu_times_the_contrast_of_representations() -> None:
    model = FlatModel(network())
    start, last, here = model.read(), elsewhere(1), elsewhere(2)
    loss = Contrastive(mu=3.0, temperature=0.5).start(model, last, Keyed(0).generator)
    model.load(here)
    z = tanh_of(here)
    near, far = (torch.exp(cosine(z, tanh_of(vector)) / 0.5) for vector in (start, last))
    expected = F.cross_entropy(model.module(X), Y) - 3.0 * torch.log(near / (near + far)).mean()
    assert loss(model, X, Y).item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.equal(model.read(), here), "the model stands where it stood"


def test_without_a_last_model_the_term_is_log_2_and_has_no_gradient() -> None:
    model = FlatModel(network())
    loss = Contrastive(mu=3.0).start(model, None, Keyed(0).generator)
    model.load(elsewhere(2))
    plain, value = plain_gradient(model, X, Y)
    found, with_term = plain_gradient(model, X, Y, loss)
    assert with_term == pytest.approx(value + 3.0 * math.log(2), rel=1e-6)
    assert torch.allclose(found, plain, atol=1e-7)


class Normalised(nn.Module):
    """With running statistics and dropout, and its head declared first."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 3)
        self.body = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def test_representations_to_compare_with_leave_statistics_and_random_state_alone() -> None:
    model = FlatModel(Normalised())
    model.module.train()
    loss = Contrastive().start(model, model.read() + 0.1, Keyed(0).generator)
    torch.manual_seed(5)
    loss(model, X, Y)
    after, state = model.read(), torch.get_rng_state()
    again = FlatModel(Normalised())
    again.module.train()
    torch.manual_seed(5)
    again.module(X)
    assert torch.equal(after, again.read()), "one pass in training mode moved the statistics, once"
    assert torch.equal(state, torch.get_rng_state())


# The perturbed loss


def test_the_perturbed_loss_moves_the_last_layer_by_keyed_noise_and_nothing_else() -> None:
    model = FlatModel(network())
    loss = PerturbedScores(share=0.7, deviation=0.5).start(model, None, Keyed(3).generator)
    rng = Keyed(3).generator("perturbation")
    torch.manual_seed(99)
    state = torch.get_rng_state()
    for _ in range(2):
        weight = model.parameters[2] + gaussian_vector(12, 0.5, rng).view(3, 4)
        bias = model.parameters[3] + gaussian_vector(3, 0.5, rng)
        moved = F.cross_entropy(tanh_of(model.vector) @ weight.T + bias, Y)
        expected = F.cross_entropy(model.module(X), Y) + 0.7 * moved
        assert loss(model, X, Y).item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_layer_without_bias_is_perturbed_too() -> None:
    model = FlatModel(nn.Sequential(nn.Linear(5, 3, bias=False)))
    values = {
        PerturbedScores(1.0, 0.5).start(model, None, Keyed(seed).generator)(model, X, Y).item()
        for seed in (0, 0, 1)
    }
    assert len(values) == 2


# Both


OBJECTIVES: dict[str, Callable[[], Objective]] = {
    "contrastive": lambda: Contrastive(2.0, 0.3),
    "perturbed": lambda: PerturbedScores(1.5, 0.3),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_gradient_is_that_of_numeric_differences(name: str) -> None:
    model, here = FlatModel(network()), elsewhere(2)

    def value(vector: Tensor) -> tuple[Tensor, float]:
        loss = OBJECTIVES[name]().start(start, elsewhere(1), Keyed(0).generator)
        model.load(vector)
        return plain_gradient(model, X, Y, loss)

    start = FlatModel(network())
    gradient, step = value(here)[0], 1e-2
    for entry in range(len(here)):
        moved = torch.zeros(len(here)).index_fill(0, torch.tensor([entry]), step)
        numeric = (value(here + moved)[1] - value(here - moved)[1]) / (2 * step)
        assert numeric == pytest.approx(gradient[entry].item(), abs=2e-3)


@pytest.mark.parametrize("objective", [Contrastive(mu=0.0), PerturbedScores(share=0.0)])
def test_a_term_of_no_weight_gives_plain_sgd(objective: Objective) -> None:
    ends = []
    for chosen in (objective, CrossEntropy()):
        model = FlatModel(network())
        plain_steps(
            model,
            DATA,
            5,
            LocalTraining(SGD(0.3), 4, objective=chosen),
            Keyed(0).generator,
            last=elsewhere(1),
        )
        ends.append(model.read())
    assert torch.allclose(*ends, atol=1e-6)


@pytest.mark.parametrize("objective", [Contrastive(), PerturbedScores()])
def test_only_plain_cross_entropy_takes_the_ways_without_autograd(objective: Objective) -> None:
    model = FlatModel(network())
    taken = [
        descent(
            model, DATA, local, 5, None, local.objective.start(model, None, Keyed(0).generator)
        ).func  # type: ignore[attr-defined]
        for local in (LocalTraining(SGD(0.3), 4), LocalTraining(SGD(0.3), 4, objective=objective))
    ]
    assert taken[0] is not ways._by_autograd
    assert taken[1] is ways._by_autograd


@pytest.mark.parametrize("objective", [Contrastive(mu=5.0), PerturbedScores(deviation=1.0)])
def test_a_round_is_repeated_bit_for_bit_by_its_keys_and_moves_the_steps(
    objective: Objective,
) -> None:
    def end(seed: int, chosen: Objective = objective, torch_seed: int = 0) -> bytes:
        model = FlatModel(network())
        torch.manual_seed(torch_seed)
        plain_steps(
            model,
            DATA,
            3,
            LocalTraining(SGD(0.3), 10, objective=chosen),
            Keyed(seed).generator,
            last=elsewhere(1),
        )
        return np.asarray(model.read()).tobytes()

    assert end(0) == end(0, torch_seed=1)
    assert end(0) != end(0, CrossEntropy())


# The layer that makes the scores


def test_the_last_layer_is_the_one_that_makes_the_scores_wherever_it_is_declared() -> None:
    model = FlatModel(Normalised())
    model.module.eval()
    seen = final_layer(model, X)
    assert seen.layer is model.module.head
    assert torch.equal(seen.inputs, model.module.body(X))
    assert not any(layer._forward_hooks for layer in model.module.modules())


@pytest.mark.parametrize("ending", [nn.Softmax(1), nn.Unflatten(1, (3, 1))])
def test_a_model_that_does_not_end_in_a_linear_layer_is_refused(ending: nn.Module) -> None:
    with pytest.raises(DpflError, match=r"end it with nn\.Linear"):
        final_layer(FlatModel(nn.Sequential(nn.Linear(5, 3), ending)), X)
    with pytest.raises(DpflError, match=r"end it with nn\.Linear"):
        final_layer(FlatModel(nn.Sequential(nn.Conv1d(1, 3, 5), nn.Flatten())), X[:, None])


def test_what_is_left_out_of_an_objective_is_as_its_paper_has_it() -> None:
    assert Contrastive() == Contrastive(1.0, 0.5)
    assert PerturbedScores() == PerturbedScores(1.0, 0.1)
    assert (Contrastive().needs_last, PerturbedScores().needs_last, CrossEntropy().needs_last) == (
        True,
        False,
        False,
    )
