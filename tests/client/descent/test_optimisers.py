import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpfl.client.descent.optimisers import SGD, AdaGrad, Adam, Momentum, UncalibratedSGD, optimiser
from dpfl.errors import DpflError

PAIRS = {
    "sgd": (lambda rate: SGD(rate), lambda p, rate: torch.optim.SGD(p, lr=rate)),
    "momentum": (
        lambda rate: Momentum(rate, 0.8),
        lambda p, rate: torch.optim.SGD(p, lr=rate, momentum=0.8),
    ),
    "adam": (
        lambda rate: Adam(rate, 0.8, 0.95, 1e-6),
        lambda p, rate: torch.optim.Adam(p, lr=rate, betas=(0.8, 0.95), eps=1e-6),
    ),
    "adagrad": (
        lambda rate: AdaGrad(rate, 1e-6),
        lambda p, rate: torch.optim.Adagrad(p, lr=rate, eps=1e-6),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 12),
    rate=st.floats(1e-3, 1.0),
    scale=st.floats(1e-3, 1e3),
)
@settings(max_examples=25, deadline=None)
def test_an_optimiser_walks_exactly_where_torch_optim_walks(
    name: str, seed: int, steps: int, rate: float, scale: float
) -> None:
    ours, theirs = PAIRS[name]
    generator = torch.Generator().manual_seed(seed)
    gradients = scale * torch.randn(steps, 7, generator=generator)
    start = torch.randn(7, generator=generator)
    parameter = nn.Parameter(start.clone())
    reference = theirs([parameter], rate)
    step, vector = ours(rate).start(), start.clone()
    for gradient in gradients:
        parameter.grad = gradient.clone()
        reference.step()
        vector += step(gradient)
    size = max(1.0, float((parameter.detach() - start).abs().max()))
    assert torch.allclose(
        vector, parameter.detach(), rtol=0, atol=2e-6 * size + 1e-6 * float(start.abs().max())
    )


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adagrad"])
def test_the_defaults_are_those_of_torch_optim(name: str) -> None:
    reference = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=0.1),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-8),
    }[name]
    parameter = nn.Parameter(torch.zeros(5))
    theirs, step, vector = reference([parameter]), optimiser(name, 0.1).start(), torch.zeros(5)
    for gradient in torch.randn(6, 5, generator=torch.Generator().manual_seed(3)):
        parameter.grad = gradient
        theirs.step()
        vector += step(gradient)
    assert torch.allclose(vector, parameter.detach(), atol=1e-6)


@pytest.mark.parametrize("name", PAIRS)
def test_a_started_optimiser_remembers_nothing_of_an_earlier_one(name: str) -> None:
    chosen, gradient = PAIRS[name][0](0.1), torch.tensor([1.0, -2.0])
    first = chosen.start()
    before = first(gradient)
    first(gradient)
    assert torch.equal(chosen.start()(gradient), before)


@pytest.mark.parametrize("name", PAIRS)
def test_a_step_leaves_the_gradient_that_it_was_given_as_it_was(name: str) -> None:
    step, gradient = PAIRS[name][0](0.1).start(), torch.tensor([1.0, -2.0])
    step(gradient)
    step(gradient)
    assert gradient.tolist() == [1.0, -2.0]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("kind", [SGD, Momentum, Adam, AdaGrad])
def test_a_learning_rate_that_is_not_above_zero_is_refused(kind: type, rate: float) -> None:
    with pytest.raises(DpflError, match="learning rate"):
        kind(rate)


def test_an_unknown_optimiser_is_answered_with_those_there_are() -> None:
    with pytest.raises(DpflError, match="did you mean 'adam'"):
        optimiser("adamw", 0.1)
    with pytest.raises(DpflError, match="sgd, momentum, adam, adagrad"):
        optimiser("newton", 0.1)


def test_what_is_left_out_is_as_in_the_papers_and_in_torch() -> None:
    assert Momentum(0.1) == Momentum(0.1, 0.9)
    assert Adam(0.1) == Adam(0.1, 0.9, 0.999, 1e-8)
    assert AdaGrad(0.1) == AdaGrad(0.1, 1e-8)
    assert not UncalibratedSGD(1.0).by_rows


@pytest.mark.parametrize("walk", [0.0, -1.0, float("nan")])
def test_a_walk_that_leads_nowhere_is_refused(walk: float) -> None:
    with pytest.raises(DpflError, match="must be above 0"):
        UncalibratedSGD(walk)


def test_noise_for_one_sample_is_bounded_for_steps_that_are_linear_alone() -> None:
    """`linear` says that a step is the gradient times the rate, which the noise of an upload relies
    on.
    """
    assert SGD(0.1).linear
    assert not any(
        one.linear for one in (Momentum(0.1), Adam(0.1), AdaGrad(0.1), UncalibratedSGD(1.0))
    )


def test_an_optimiser_says_how_much_of_a_step_it_repeats_and_what_its_rate_follows_from() -> None:
    """A node bounds by the first how far a correction moves the model. Planning asks the others."""
    assert Momentum(0.1, beta=0.75).momentum == 0.75
    planned = UncalibratedSGD(15.0, by_rows=True)
    assert (planned.walk, planned.by_rows, planned.calibrated, planned.momentum) == (
        15.0,
        True,
        False,
        0.0,
    )
    for known in (SGD(0.1), Adam(0.1), AdaGrad(0.1), Momentum(0.1)):
        assert known.calibrated
        assert known.walk is None
        assert not known.by_rows
    assert SGD(0.1).momentum == Adam(0.1).momentum == AdaGrad(0.1).momentum == 0.0
