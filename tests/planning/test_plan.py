"""`dpfl.plan`: limits in samples and in seconds, and experiments that keep to the plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn

import dpfl
from dpfl.config.experiment import parse
from dpfl.errors import DpflError
from dpfl.planning.noise_choices import PlanningQuestion
from dpfl.planning.plan import ClientWorkload, PlanSearch, noise_shares
from dpfl.planning.speed import ClientWork
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares


def test_seconds_a_round_are_samples_a_round_at_a_speed():
    options = {"sizes": [6000, 900], "search": PlanSearch((0.02, 0.05, 0.1), (1,))}
    speed = ClientWorkload(seconds_per_round=0.5, samples_per_second=700)
    timed = dpfl.plan(2, 317, workload=speed, **options)
    limited = dpfl.plan(2, 317, workload=ClientWorkload(samples_per_round=350), **options)
    assert timed.choices == limited.choices
    assert (timed.recommendation, timed.clients) == (limited.recommendation, limited.clients)
    assert timed.recommendation.sampling_rate == 0.05
    assert "700 samples per second (as given)" in timed.assumptions[-1]
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
    options = {"sizes": [10**7], "search": PlanSearch((1e-3, 1.0), (1,))}
    workload = ClientWorkload(model, (3, 4), 3, seconds_per_round=1.0)
    result = dpfl.plan(2, 10, workload=workload, **options)
    question = result.question
    assert [(work.shape, work.classes, work.parameters) for work in works] == [((3, 4), 3, 39)]
    assert question.parameters == 39
    assert result.recommendation.sampling_rate < 1
    assert (
        result.recommendation.samples(10**7)
        <= question.limit
        == question.samples_per_second
        == 123_000
    )
    assert "measured here" in result.assumptions[-1]
    assert "Sequential on random numbers of shape 3 x 4" in result.assumptions[-1]
    dpfl.plan(2, 10, workload=replace(workload, samples_per_second=1e6), **options)
    assert len(works) == 1, "a speed that is given is not measured"
    with pytest.raises(DpflError, match="either"):
        ClientWorkload(model, (3, 4), parameters=39)


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
    plan = dpfl.plan(
        epsilon,
        rounds,
        sizes=[2000, 4000, 2000],
        accountant=by,
        search=PlanSearch((rate,), (tau,)),
    )
    small = {
        "model": {"name": "mlp", "hidden": 2},
        "evaluate": {"every": 100},
        "engine": {"workers": 1},
    }
    with TemporaryDirectory() as folder:
        result = parse(plan.experiment() | small).run(Path(folder) / "run")
    assert (result.rounds, result.iterations) == (rounds, rounds * tau)
    assert 0.99 * epsilon < result.privacy.proven <= epsilon
    assert max(result.privacy.per_client.values()) <= epsilon
    assert result.privacy.accountant == by


def test_secure_sums_need_clients_and_share_the_noise_of_the_survivors() -> None:
    assert noise_shares(10) is None
    assert noise_shares(10, colluders=2) == NoiseShares(10, 2)
    assert noise_shares(10, 8) == NoiseShares(8, 0)
    with pytest.raises(DpflError, match="sizes"):
        noise_shares(0, 8)
    with pytest.raises(DpflError, match="survivors"):
        dpfl.plan(2, 10, sizes=[100] * 10, secure_sums=NoiseShares(3, 0))


def test_keywords_of_version_0_1_still_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match=r"plan\(search=\.\.\.\)"):
        old = dpfl.plan(2, 10, sizes=[100] * 4, rates=(1.0,), taus=(1,), samples_per_round=500)
    new = dpfl.plan(
        2,
        10,
        sizes=[100] * 4,
        workload=ClientWorkload(samples_per_round=500),
        search=PlanSearch((1.0,), (1,)),
    )
    assert old == new
    with pytest.warns(DeprecationWarning, match="secure_sums"):
        shared = dpfl.plan(2, 10, sizes=[100] * 4, rates=(1.0,), survivors=4, colluders=1)
    assert shared.question.noise_shares == NoiseShares(4, 1)
