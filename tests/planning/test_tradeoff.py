"""The trade-off of a budget: its figures are the accountant's, and what it recommends stays inside
every limit.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.planning.noise_choices import ENOUGH_STEPS, NoiseChoice, PlanningQuestion
from dpfl.planning.planner import afford
from dpfl.planning.tradeoff import TOLERANCE, tradeoff
from dpfl.privacy import Poisson, accountant

DELTA = 1e-5


def cost_of(choice: NoiseChoice, by: str = "pld") -> float:
    event = Poisson(choice.sampling_rate).event(choice.noise_multiplier, 1)
    return accountant(by).epsilon({event: choice.iterations}, DELTA)


@pytest.fixture(scope="module")
def papers():
    return tradeoff(PlanningQuestion(2.0, 317))


@pytest.mark.parametrize(("rate", "per_step"), [(0.05, 39.8), (0.2, 36.0), (1.0, 35.5)])
def test_a_better_rate_nearly_halves_the_noise_of_the_papers(papers, rate, per_step):
    """With q = .015 and sigma = 1.1 the papers' noise a step is 73."""
    (choice,) = [cell for cell in papers.choices if cell.sampling_rate == rate and cell.tau == 1]
    assert choice.per_step == pytest.approx(per_step, abs=0.1)
    assert choice.per_step < 0.55 * 1.1 / 0.015


def test_every_figure_is_the_accountants_and_none_exceeds_epsilon(papers):
    for choice in papers.choices:
        assert 2.0 * 0.99 < cost_of(choice) <= 2.0, choice
        assert choice.iterations == 317 * choice.tau


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.1, 100), (0.5, 2), (8.0, 300)])
def test_figures_are_the_accountants_for_small_and_large_budgets(epsilon, rounds):
    result = tradeoff(PlanningQuestion(epsilon, rounds), rates=(0.015, 0.2), taus=(1, 5))
    for choice in result.choices:
        assert epsilon * 0.985 < cost_of(choice) <= epsilon, choice


def test_the_recommended_noise_is_that_of_a_plan_for_its_iterations(papers):
    best = papers.recommendation
    line = afford(DELTA, best.sampling_rate, 2.0, iterations=best.iterations)
    assert best.noise_multiplier == pytest.approx(line.noise_multiplier, rel=4e-4)
    assert best in papers.choices


def test_noise_in_all_falls_with_the_rate_and_not_below_that_of_everyone(papers):
    for tau in (1, 2, 3, 5):
        totals = [choice.total for choice in papers.choices if choice.tau == tau]
        assert totals == sorted(totals, reverse=True)
        assert totals[-1] == pytest.approx(35.5 / math.sqrt(317), rel=2e-3)


def test_within_the_tolerance_the_plan_that_computes_least_is_recommended(papers):
    best, least = papers.recommendation, min(choice.score for choice in papers.choices)
    assert best.score <= TOLERANCE * least
    cheaper = [c for c in papers.choices if c.sampling_rate * c.tau < best.sampling_rate * best.tau]
    assert cheaper
    assert all(choice.score > TOLERANCE * least for choice in cheaper)


def test_other_accountants_buy_less_of_the_same_noise(papers):
    bought = papers.iterations_by_accountant
    assert bought["pld"] == papers.recommendation.iterations > bought["rdp"] > bought["rdp-classic"]
    best = papers.recommendation
    event = Poisson(best.sampling_rate).event(best.noise_multiplier, 1)
    for name, count in bought.items():
        assert accountant(name).epsilon({event: count}, DELTA) <= 2.0
        assert accountant(name).epsilon({event: count + 1}, DELTA) > 2.0 * 0.999


def test_few_rounds_are_planned_with_more_steps_each():
    result = tradeoff(PlanningQuestion(2.0, 10), rates=(0.2, 1.0))
    assert result.recommendation.tau > 5
    assert result.recommendation.iterations >= ENOUGH_STEPS


@settings(max_examples=3)
@given(st.floats(0.5, 6.0), st.integers(30, 400), st.integers(50, 5000), st.floats(0.02, 0.9))
def test_a_recommendation_stays_within_epsilon_and_the_samples_a_round(
    epsilon, rounds, size, share
):
    question = PlanningQuestion(
        epsilon, rounds, sizes=(size, max(1, size // 3)), samples_per_round=share * size
    )
    result = tradeoff(question, rates=(0.02, share), taus=(1,))
    assert result.recommendation.samples(size) <= share * size * (1 + 1e-6)
    assert cost_of(result.recommendation) <= epsilon
    assert result.allowed(result.recommendation)


def test_what_the_limit_allows_is_offered_in_full():
    result = tradeoff(PlanningQuestion(2.0, 317, sizes=(6000,), samples_per_round=200), taus=(1,))
    assert result.recommendation.sampling_rate == 0.0333
    assert not result.allowed(
        next(choice for choice in result.choices if choice.sampling_rate == 0.05)
    )


def test_every_step_of_a_round_counts_towards_its_samples():
    question = PlanningQuestion(2.0, 20, sizes=(6000, 10), samples_per_round=1000)
    result = tradeoff(question, rates=(0.05, 0.1), taus=(1, 3, 5))
    assert {(c.sampling_rate, c.tau) for c in result.choices if result.allowed(c)} == {
        (0.05, 1),
        (0.05, 3),
        (0.1, 1),
    }
    assert result.allowed(result.recommendation)


def test_smaller_clients_would_sample_more_and_need_less_noise():
    result = tradeoff(PlanningQuestion(2.0, 317, sizes=(6000, 600, 600, 2000)), taus=(1,))
    large, middle, small = result.clients
    assert (large.size, middle.size, small.size) == (6000, 2000, 600)
    assert small.clients == 2
    assert large.own == result.recommendation
    assert small.own.sampling_rate > middle.own.sampling_rate > large.own.sampling_rate
    for client in result.clients:
        assert client.own_noise <= client.shared_noise
        assert client.own.samples(client.size) <= result.recommendation.samples(6000) * (1 + 1e-9)
        assert cost_of(client.own) <= 2.0
        assert client.shared_noise == pytest.approx(result.recommendation.per_step / client.size)


def test_the_learning_rate_lets_noise_move_the_model_as_far_whatever_its_size():
    small = tradeoff(
        PlanningQuestion(2.0, 317, sizes=(800,) * 10, parameters=26010), rates=(0.1,), taus=(1,)
    )
    quarter = tradeoff(
        PlanningQuestion(2.0, 317, sizes=(800,) * 10, parameters=4 * 26010), rates=(0.1,), taus=(1,)
    )
    assert small.rate == pytest.approx(2 * quarter.rate, rel=0.05)
    assert tradeoff(PlanningQuestion(2.0, 317), rates=(0.1,), taus=(1,)).rate is None


@pytest.mark.parametrize("by", ["rdp", "rdp-classic"])
def test_another_proven_accountant_is_kept_to(by):
    result = tradeoff(PlanningQuestion(2.0, 100, accountant=by), rates=(0.1,), taus=(1, 3))
    for choice in result.choices:
        assert 2.0 * 0.998 < cost_of(choice, by) <= 2.0


def test_a_rate_that_the_limit_forbids_is_refused():
    with pytest.raises(DpflError, match="samples per round"):
        tradeoff(
            PlanningQuestion(2.0, 10, sizes=(1000,), samples_per_round=10), rates=(0.5,), taus=(1,)
        )
