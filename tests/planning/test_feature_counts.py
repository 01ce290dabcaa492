"""Clip and rate of `auto` on rows of a table; on other samples they are what they were."""

import pytest

import dpfl
from dpfl import tasks
from dpfl.algorithms import auto
from dpfl.data.tables.schema import FeatureLayout
from dpfl.planning.feature_counts import SCORE_NOISE, rows_of
from dpfl.planning.planner import with_planned_rate
from dpfl.privacy import Budget

TABLE = FeatureLayout(numbers=19, levels=(5,))
BUDGET = Budget(epsilon=1.0, rounds=20)


def planned(given, rows, sizes=(3000,) * 6, parameters=25):
    return with_planned_rate(given, BUDGET, sizes, parameters, rows)


def test_samples_that_are_no_rows_keep_clip_and_walk():
    given = auto(noise_multiplier=2.0)
    plain = planned(given, None)
    walked = planned(auto(noise_multiplier=2.0, clip=0.05, walk=15.0), None)
    assert (plain.samples.clip.clip_norm, plain.local) == (0.05, walked.local)
    assert rows_of(None, tasks.Binary()) is None
    assert rows_of(TABLE, tasks.NextToken(5)) is None


def test_steps_on_rows_are_as_long_as_a_linear_model_can_bear():
    """Binary: the curvature at a score is 1/4 at most, and a row has 20 columns and a constant."""
    found = planned(auto(noise_multiplier=2.0), rows_of(TABLE, tasks.Binary()))
    assert found.samples.clip.clip_norm == pytest.approx(21**0.5, rel=1e-2)
    assert found.local.optimiser.rate == pytest.approx(2 / (21 / 4), rel=1e-2)


def test_with_little_data_noise_moves_a_score_by_no_more_than_said():
    rows = rows_of(TABLE, tasks.Binary())
    found = planned(auto(noise_multiplier=2.0), rows, sizes=(30,) * 6)
    step = found.local.optimiser.rate * 2.0 * found.samples.clip.clip_norm * 6**0.5 / (0.1 * 180)
    assert step * 20**0.5 * rows.length == pytest.approx(SCORE_NOISE, rel=2e-2)


def test_a_clip_or_walk_that_was_given_stays():
    rows = rows_of(TABLE, tasks.Binary())
    assert planned(auto(noise_multiplier=2.0, clip=0.3), rows).samples.clip.clip_norm == 0.3
    assert planned(auto(noise_multiplier=2.0, walk=3.0), rows).samples.clip.clip_norm == 0.05
    assert planned(auto(noise_multiplier=2.0, rate=0.7), rows).local.optimiser.rate == 0.7


@pytest.mark.parametrize(
    ("task", "same"),
    [
        (tasks.Binary((1.0, 3.0)), lambda one: (3 * one.slope, 3 * one.curvature)),
        (tasks.MultiLabel(4), lambda one: (one.slope / 2, one.curvature / 4)),
        (tasks.Ordinal(5), lambda one: (one.slope / 2, one.curvature / 4)),
    ],
)
def test_weights_and_means_over_outputs_scale_slope_and_curvature(task, same):
    found = rows_of(TABLE, task)
    assert (found.slope, found.curvature) == pytest.approx(same(rows_of(TABLE, tasks.Binary())))


@pytest.mark.parametrize(
    ("label", "metric", "least"),
    [("any-visit", "AUC", 0.70), ("visits", "explained deviance", 0.08)],
)
def test_auto_learns_from_a_table(train, label, metric, least):
    """With gradients of one length and the walk of images, these were 0.50 and below 0."""
    federation = dpfl.data.randhie(label=label).by_owner()
    result = train(
        federation, auto(), model=dpfl.models.linear(), epsilon=1.0, rounds=20, evaluate_every=20
    )
    assert result.metrics[metric] > least
    if label == "any-visit":
        assert result.metrics["log loss"] < 0.58
