"""The trade-off of a budget: its figures are the accountant's, and what it recommends stays inside
every limit.
"""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn

import dpfl
from dpfl.config.experiment import parse
from dpfl.errors import DpflError
from dpfl.planning.noise_choices import ENOUGH_STEPS, NoiseChoice, PlanningQuestion
from dpfl.planning.planner import afford
from dpfl.planning.speed import ClientWork
from dpfl.planning.tradeoff import TOLERANCE, tradeoff
from dpfl.privacy import Poisson, accountant

DELTA = 1e-5


def spent(choice: NoiseChoice, by: str = "pld") -> float:
    event = Poisson(choice.sampling_rate).event(choice.noise_multiplier, 1)
    return accountant(by).epsilon({event: choice.iterations}, DELTA)


@pytest.fixture(scope="module")
def papers():
    return tradeoff(PlanningQuestion(2.0, 317))


@pytest.mark.parametrize(("rate", "per_step"), [(0.05, 39.8), (0.2, 36.0), (1.0, 35.5)])
def test_a_better_rate_nearly_halves_the_noise_of_the_papers(papers, rate, per_step):
    """With q = .015 and sigma = 1.1 the papers' noise a step is 73."""
    (found,) = [
        choice for choice in papers.choices if choice.sampling_rate == rate and choice.tau == 1
    ]
    assert found.per_step == pytest.approx(per_step, abs=0.1)
    assert found.per_step < 0.55 * 1.1 / 0.015


def test_every_figure_is_the_accountants_and_none_exceeds_epsilon(papers):
    for choice in papers.choices:
        assert 2.0 * 0.99 < spent(choice) <= 2.0, choice
        assert choice.iterations == 317 * choice.tau


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.1, 100), (0.5, 2), (8.0, 300)])
def test_figures_are_the_accountants_for_small_and_large_budgets(epsilon, rounds):
    found = tradeoff(PlanningQuestion(epsilon, rounds), rates=(0.015, 0.2), taus=(1, 5))
    for choice in found.choices:
        assert epsilon * 0.985 < spent(choice) <= epsilon, choice


def test_the_recommended_noise_is_that_of_a_plan_for_its_iterations(papers):
    chosen = papers.recommended
    made = afford(DELTA, chosen.sampling_rate, 2.0, iterations=chosen.iterations)
    assert chosen.noise_multiplier == pytest.approx(made.noise_multiplier, rel=4e-4)
    assert chosen in papers.choices


def test_noise_in_all_falls_with_the_rate_and_not_below_that_of_everyone(papers):
    for tau in (1, 2, 3, 5):
        totals = [choice.total for choice in papers.choices if choice.tau == tau]
        assert totals == sorted(totals, reverse=True)
        assert totals[-1] == pytest.approx(35.5 / math.sqrt(317), rel=2e-3)


def test_within_the_tolerance_the_plan_that_computes_least_is_recommended(papers):
    chosen, least = papers.recommended, min(choice.score for choice in papers.choices)
    assert chosen.score <= TOLERANCE * least
    cheaper = [
        c for c in papers.choices if c.sampling_rate * c.tau < chosen.sampling_rate * chosen.tau
    ]
    assert cheaper
    assert all(choice.score > TOLERANCE * least for choice in cheaper)


def test_other_accountants_buy_less_of_the_same_noise(papers):
    bought = papers.bought
    assert bought["pld"] == papers.recommended.iterations > bought["rdp"] > bought["rdp-classic"]
    event = Poisson(papers.recommended.sampling_rate).event(papers.recommended.noise_multiplier, 1)
    for name, count in bought.items():
        assert accountant(name).epsilon({event: count}, DELTA) <= 2.0
        assert accountant(name).epsilon({event: count + 1}, DELTA) > 2.0 * 0.999


def test_few_rounds_are_planned_with_more_steps_each():
    found = tradeoff(PlanningQuestion(2.0, 10), rates=(0.2, 1.0))
    assert found.recommended.tau > 5
    assert found.recommended.iterations >= ENOUGH_STEPS


@settings(max_examples=3)
@given(st.floats(0.5, 6.0), st.integers(30, 400), st.integers(50, 5000), st.floats(0.02, 0.9))
def test_a_recommendation_stays_within_epsilon_and_the_samples_a_round(
    epsilon, rounds, size, share
):
    question = PlanningQuestion(
        epsilon, rounds, sizes=(size, max(1, size // 3)), samples_per_round=share * size
    )
    found = tradeoff(question, rates=(0.02, share), taus=(1,))
    assert found.recommended.samples(size) <= share * size * (1 + 1e-6)
    assert spent(found.recommended) <= epsilon
    assert found.allowed(found.recommended)


def test_what_the_limit_allows_is_offered_in_full():
    found = tradeoff(PlanningQuestion(2.0, 317, sizes=(6000,), samples_per_round=200), taus=(1,))
    assert found.recommended.sampling_rate == 0.0333
    assert not found.allowed(
        next(choice for choice in found.choices if choice.sampling_rate == 0.05)
    )


def test_every_step_of_a_round_counts_towards_its_samples():
    question = PlanningQuestion(2.0, 20, sizes=(6000, 10), samples_per_round=1000)
    found = tradeoff(question, rates=(0.05, 0.1), taus=(1, 3, 5))
    assert {(c.sampling_rate, c.tau) for c in found.choices if found.allowed(c)} == {
        (0.05, 1),
        (0.05, 3),
        (0.1, 1),
    }
    assert found.allowed(found.recommended)


def test_smaller_clients_would_sample_more_and_need_less_noise():
    found = tradeoff(PlanningQuestion(2.0, 317, sizes=(6000, 600, 600, 2000)), taus=(1,))
    large, middle, small = found.clients
    assert (large.size, middle.size, small.size) == (6000, 2000, 600)
    assert small.clients == 2
    assert large.own == found.recommended
    assert small.own.sampling_rate > middle.own.sampling_rate > large.own.sampling_rate
    for client in found.clients:
        assert client.own_noise <= client.shared_noise
        assert client.own.samples(client.size) <= found.recommended.samples(6000) * (1 + 1e-9)
        assert spent(client.own) <= 2.0
        assert client.shared_noise == pytest.approx(found.recommended.per_step / client.size)


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
    found = tradeoff(PlanningQuestion(2.0, 100, accountant=by), rates=(0.1,), taus=(1, 3))
    for choice in found.choices:
        assert 2.0 * 0.998 < spent(choice, by) <= 2.0


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"rounds": 0}, "rounds"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"accountant": "gdp-clt"}, "approximation"),
        ({"sizes": (10, 0)}, "at least 1 sample"),
        ({"samples_per_round": 10.0}, "sizes"),
        ({"sizes": (10,), "samples_per_round": 0.0}, "above 0"),
        ({"parameters": 0}, "parameter"),
        ({"seconds_per_round": 1.0}, "go together"),
        ({"samples_per_second": 1.0}, "go together"),
        ({"sizes": (10,), "seconds_per_round": 1.0, "samples_per_second": -1.0}, "above 0"),
        ({"seconds_per_round": 1.0, "samples_per_second": 5.0}, "sizes"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(given, word):
    with pytest.raises(DpflError, match=word):
        PlanningQuestion(**({"epsilon": 2.0, "rounds": 10} | given))


def test_a_rate_that_the_limit_forbids_is_refused():
    with pytest.raises(DpflError, match="samples a round"):
        tradeoff(
            PlanningQuestion(2.0, 10, sizes=(1000,), samples_per_round=10), rates=(0.5,), taus=(1,)
        )


def test_seconds_a_round_are_samples_a_round_at_a_speed():
    given = {"sizes": [6000, 900], "taus": (1,), "rates": (0.02, 0.05, 0.1)}
    timed = dpfl.plan(2, 317, seconds_per_round=0.5, samples_per_second=700, **given)
    counted = dpfl.plan(2, 317, samples_per_round=350, **given)
    assert timed.choices == counted.choices
    assert (timed.recommended, timed.clients) == (counted.recommended, counted.clients)
    assert timed.recommended.sampling_rate == 0.05
    assert "700 samples a second (as given)" in timed.assumptions[-1]
    assert (
        PlanningQuestion(
            2, 317, sizes=(9,), seconds_per_round=0.5, samples_per_second=700, samples_per_round=130
        ).limit
        == 130
    )


def test_the_speed_of_a_model_is_measured_where_it_is_not_given(monkeypatch):
    """The measurement has tests of its own; here it gives 123,456 samples a second, of which three
    digits count.
    """
    works: list[ClientWork] = []
    monkeypatch.setattr(
        ClientWork, "samples_per_second", lambda work: works.append(work) or 123_456.0
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    limits = {"sizes": [10**7], "seconds_per_round": 1.0, "rates": (1e-3, 1.0), "taus": (1,)}
    found = dpfl.plan(2, 10, model=model, shape=(3, 4), classes=3, **limits)
    question = found.question
    assert [(work.shape, work.classes, work.parameters) for work in works] == [((3, 4), 3, 39)]
    assert question.parameters == 39
    assert found.recommended.sampling_rate < 1
    assert (
        found.recommended.samples(10**7) <= question.limit == question.samples_per_second == 123_000
    )
    assert "measured here" in found.assumptions[-1]
    assert "Sequential on random numbers of shape 3 x 4" in found.assumptions[-1]
    dpfl.plan(2, 10, model=model, shape=(3, 4), classes=3, samples_per_second=1e6, **limits)
    assert len(works) == 1, "a speed that is given is not measured"
    with pytest.raises(DpflError, match="either"):
        dpfl.plan(2, 10, model=model, shape=(3, 4), parameters=39)


@settings(
    max_examples=4, phases=[Phase.generate]
)  # runs are too long to look for the smallest that fails
@given(
    st.floats(0.3, 8.0),
    st.integers(1, 4),
    st.sampled_from(["pld", "rdp", "rdp-classic"]),
    st.sampled_from([1, 3]),
    st.sampled_from([0.01, 0.04, 1.0]),
)
def test_a_planned_experiment_makes_all_of_its_rounds_and_never_exceeds_its_epsilon(
    epsilon, rounds, by, tau, rate
):
    found = dpfl.plan(
        epsilon, rounds, sizes=[2000, 4000, 2000], accountant=by, taus=(tau,), rates=(rate,)
    )
    small = {
        "model": {"name": "mlp", "hidden": 2},
        "evaluate": {"every": 100},
        "engine": {"workers": 1},
    }
    with TemporaryDirectory() as folder:
        result = parse(found.experiment() | small).run(Path(folder) / "run")
    assert (result.rounds, result.iterations) == (rounds, rounds * tau)
    assert 0.99 * epsilon < result.privacy.proven <= epsilon
    assert max(result.privacy.per_client.values()) <= epsilon
    assert result.privacy.accountant == by
