"""Metrics from sums with noise: no sample counts for more than its bound, and intervals hold what
they say.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.queries.mean import MeanAnswer
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.tasks import (
    Binary,
    Counts,
    MultiClass,
    MultiLabel,
    NextToken,
    Ordinal,
    Regression,
    number_metrics,
)
from dpfl.tasks import metrics as exact
from dpfl.tasks.noisy import count_outcomes, figures, numbers_and_cells
from tests.privacy.queries.subject import RowSubject

TASKS = (
    MultiClass(3),
    Binary((1.0, 50.0)),
    MultiLabel(2),
    Ordinal(4),
    Regression("huber", 1.0, 2.0),
    Counts(),
    NextToken(5),
)
SCORES = st.floats(width=32) | st.sampled_from([0.0, math.inf, -math.inf, math.nan, 1e30])


def metric_query(task, multiplier: float = 1e-9) -> MetricQuery:
    return MetricQuery(multiplier, *numbers_and_cells(task), most=4.0, held_out=0.0)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@given(data=st.data())
def test_no_sample_moves_the_sum_by_more_than_the_bound(task, data):
    """Whatever the model says of it, and with any label."""
    labels = task.examples(2)
    y = labels[data.draw(st.integers(0, len(labels) - 1))].unsqueeze(0)
    shape = (1, *y.shape[1:], task.outputs) if task.name == "tokens" else (1, task.outputs)
    scores = torch.tensor(
        data.draw(st.lists(SCORES, min_size=math.prod(shape), max_size=math.prod(shape)))
    ).view(shape)
    one, asked = count_outcomes(task, scores, y, 4.0), metric_query(task)
    with_it, without = (
        asked.answer(RowSubject(terms, 1), np.random.default_rng(0)) for terms in (one, one[:0])
    )
    moved = with_it - without
    assert np.isfinite(moved).all()
    assert np.linalg.norm(moved) <= asked.bound * (1 + 1e-6)
    assert asked.bound == pytest.approx(
        {"binary": 3, "classes": 2, "labels": 2, "ordinal": 2}.get(task.name, 1) ** 0.5
    )


def drawn(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    y = (torch.rand(count, generator=rng) < 0.3).float()
    return (torch.randn(count, generator=rng) + 1.5 * y - 1).unsqueeze(1), y


def measured(scores: torch.Tensor, y: torch.Tensor, multiplier: float, seed: int):
    asked, half, rng = metric_query(Binary(), multiplier), len(y) // 2, np.random.default_rng(seed)
    parts = {0: slice(0, half), 1: slice(half, None)}
    sizes = [half, len(y) - half]
    answers = {
        client: torch.from_numpy(
            asked.answer(
                RowSubject(count_outcomes(Binary(), scores[part], y[part], 4.0), sizes[client]), rng
            )
        )
        for client, part in parts.items()
    }
    said = MeanAnswer.from_clients(answers, sizes, multiplier * asked.bound)
    return figures(Binary(), said.mean.numpy(), said.units, said.noise, 4.0)


def test_with_little_noise_the_figures_are_those_of_the_samples():
    scores, y = drawn(4000, 0)
    found = measured(scores, y, 1e-6, 0)
    truth = Binary().metrics(scores.numpy(), y.numpy())
    assert found.headline == next(iter(found.metrics)) == "AUC"
    assert found.metrics["AUC"] == pytest.approx(truth["AUC"], abs=0.01)
    assert found.metrics["accuracy"] == pytest.approx(truth["accuracy"], abs=1e-4)
    assert found.metrics["clipped loss"] == pytest.approx(truth["log loss"], abs=0.01)


@pytest.mark.parametrize(("count", "multiplier"), [(300, 1e-6), (2000, 10.0)])
def test_intervals_hold_the_truth_of_all_samples_about_as_often_as_they_say(count, multiplier):
    """Of sampling alone, and of noise that is larger than it."""
    large = drawn(200_000, 99)
    truth = Binary().metrics(large[0].numpy(), large[1].numpy())
    truth["clipped loss"] = truth["log loss"]
    held = dict.fromkeys(("AUC", "accuracy", "clipped loss"), 0)
    for seed in range(60):
        found = measured(*drawn(count, seed), multiplier, seed)
        for name in held:
            low, high = found.intervals[name]
            held[name] += low <= truth[name] <= high
    assert all(times >= 0.88 * 60 for times in held.values()), held


def test_noise_that_hides_all_leaves_everything_open():
    found = figures(Binary(), np.zeros(22), 100, 5.0, 4.0)
    assert math.isnan(found.metrics["AUC"])
    assert found.intervals["AUC"] == (0.0, 1.0)
    assert found.intervals["accuracy"] == (0.0, 1.0)


def test_the_noise_has_the_deviation_that_is_paid_for():
    asked = metric_query(Binary(), 7.0)
    nobody = RowSubject(torch.zeros(0, asked.width), 100)
    noise = np.stack([asked.answer(nobody, np.random.default_rng(seed)) for seed in range(200)])
    assert noise.std() == pytest.approx(7.0 * math.sqrt(3) / 100, rel=0.04)
    assert asked.event == gaussian(7.0)


def test_counts_are_measured_by_half_a_deviance():
    y, scores = torch.tensor([0.0, 2.0]), torch.tensor([[0.1], [0.5]])
    for mean in (1.0, 2.5):
        half = (
            number_metrics.poisson_deviance(
                mean * np.exp([0.1, 0.5]), y.numpy(), exact.each_once(y)
            )[0]
            / 2
        )
        assert float(
            count_outcomes(Counts(mean), scores, y, 4.0).mean() * 4 * mean
        ) == pytest.approx(half, rel=1e-5)
