"""Bounds from guesses: the published figures first, then that they hold as often as they say."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.audit.bounds import (
    GuessCounts,
    SampledGaussian,
    epsilon_of,
    one_run_chance,
    one_run_epsilon,
    rate_at_most,
)
from dpfl.errors import DpflError
from dpfl.privacy import FixedSize, Poisson, accountant


@pytest.mark.parametrize(("trials", "epsilon"), [(1000, 5.60), (10_000, 7.90), (20_000, 8.60)])
def test_without_an_error_the_trials_alone_limit_the_bound(trials: int, epsilon: float) -> None:
    assert GuessCounts(0, trials, 0, trials).epsilon(1e-5, 0.95) == pytest.approx(
        epsilon, abs=0.005
    )


@pytest.mark.parametrize(
    ("canaries", "guesses", "right", "delta", "epsilon"),
    [(1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)],
)
def test_one_run_gives_the_figures_of_its_paper(
    canaries: int, guesses: int, right: int, delta: float, epsilon: float
) -> None:
    assert one_run_epsilon(canaries, guesses, right, delta, 0.95) == pytest.approx(
        epsilon, abs=0.001
    )


@pytest.mark.parametrize(
    ("mu", "epsilon"), [(1, 4.377178), (2, 9.997256), (math.sqrt(8), 15.456156), (8, 65.319220)]
)
def test_mu_becomes_the_exact_epsilon_of_a_gaussian(mu: float, epsilon: float) -> None:
    assert epsilon_of(mu, 1e-5) == pytest.approx(epsilon, abs=1e-5)


@pytest.mark.parametrize(("mu", "rate"), [(1.0, 1.0), (1.0, 0.05), (1 / 1.1, 0.015), (2.0, 0.3)])
def test_what_sampling_makes_of_mu_agrees_with_the_accountant(mu: float, rate: float) -> None:
    event = Poisson(rate).event(1 / mu, 1)
    assert SampledGaussian(mu, rate).epsilon(1e-5) == pytest.approx(
        accountant("pld").epsilon({event: 1}, 1e-5), abs=3e-4
    )


def test_one_step_at_a_hundredth_is_the_figure_of_the_notes_and_replacing_moves_twice_as_far() -> (
    None
):
    assert SampledGaussian(1.0, 0.01).epsilon(1e-5) == pytest.approx(0.199450, abs=1e-4)
    assert SampledGaussian(2.0, 1.0, replaced=True).epsilon(1e-5) == pytest.approx(
        9.997256, abs=1e-5
    )
    event = FixedSize(3).event(2 / 2.5, 6)
    assert SampledGaussian(2.5, 0.5, replaced=True).epsilon(1e-5) < accountant("rdp").epsilon(
        {event: 1}, 1e-5
    )


def test_the_rate_of_nothing_seen_is_known_in_closed_form() -> None:
    assert rate_at_most(0, 1000, 0.975) == pytest.approx(1 - 0.025 ** (1 / 1000))
    assert rate_at_most(10, 10, 0.9) == 1.0
    with pytest.raises(DpflError, match="events among trials"):
        rate_at_most(5, 4, 0.9)


@given(st.integers(0, 200), st.integers(0, 200), st.floats(0.6, 0.999), st.floats(1e-9, 0.1))
def test_more_errors_more_confidence_and_more_delta_never_raise_a_bound(
    false_positives: int, false_negatives: int, confidence: float, delta: float
) -> None:
    bound = GuessCounts(false_positives, 200, false_negatives, 200).epsilon(delta, confidence)
    assert bound >= 0
    assert (
        GuessCounts(false_positives, 200, false_negatives, 200).epsilon(delta, (1 + confidence) / 2)
        <= bound + 1e-12
    )
    assert (
        GuessCounts(false_positives, 200, false_negatives, 200).epsilon(2 * delta, confidence)
        <= bound + 1e-12
    )
    if false_positives < 200 and false_negatives < 100 and false_positives < 100:
        assert (
            GuessCounts(false_positives + 1, 200, false_negatives, 200).epsilon(delta, confidence)
            <= bound + 1e-12
        )


@given(st.integers(1, 300), st.floats(0.0, 6.0))
def test_the_chance_of_right_guesses_grows_with_epsilon(right: int, epsilon: float) -> None:
    chances = [one_run_chance(value, 1000, 300, right, 1e-5) for value in (epsilon, epsilon + 0.5)]
    assert 0 <= chances[0] <= 1
    if chances[1] < 0.5:
        assert chances[0] <= chances[1]


def test_both_bounds_lie_below_the_truth_at_least_as_often_as_their_confidence() -> None:
    rng = np.random.default_rng(0)
    mu, misses = 1.0, 0
    for _ in range(400):
        outs, ins = rng.standard_normal(500), rng.standard_normal(500) + mu
        guesses = GuessCounts(int((outs > 0.5).sum()), 500, int((ins <= 0.5).sum()), 500)
        misses += guesses.mu(0.9) > mu or guesses.epsilon(1e-5, 0.9) > epsilon_of(mu, 1e-5)
    assert misses <= 40


def test_randomised_response_is_found_and_not_overstated() -> None:
    """Guesses that are right at the rate e^eps / (1 + e^eps) refute less than eps, and nearly all
    of it.
    """
    rng, truth = np.random.default_rng(0), 2.0
    right = int((rng.random(5000) < 1 / (1 + math.exp(-truth))).sum())
    assert 1.8 < one_run_epsilon(5000, 5000, right, 0.0, 0.95) < truth
