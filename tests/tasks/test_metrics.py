"""Metrics against their definitions, by brute force, and intervals against what they should
hold.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl import tasks
from dpfl.tasks import metrics
from dpfl.tasks.calibration import calibration
from dpfl.tasks.intervals import intervals


def measured(figure, said, truth) -> float:
    """Of the samples as they are."""
    (found,) = figure(said, truth, metrics.each_once(truth))
    return float(found)


binary = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), min_size=2, max_size=30)


@given(binary)
def test_auc_is_the_share_of_pairs_in_order(pairs):
    score, truth = (np.array(column) for column in zip(*pairs, strict=True))
    wins = [(a > b) + (a == b) / 2 for a, y in pairs for b, z in pairs if y == 1 and z == 0]
    if wins:
        assert measured(metrics.auc, score, truth) == pytest.approx(np.mean(wins))
    else:
        assert math.isnan(measured(metrics.auc, score, truth))


@given(binary)
def test_average_precision_is_the_sum_over_thresholds(pairs):
    score, truth = (np.array(column) for column in zip(*pairs, strict=True))
    if not truth.sum():
        assert math.isnan(measured(metrics.average_precision, score, truth))
        return
    total, before = 0.0, 0.0
    for threshold in sorted(set(score.tolist()), reverse=True):
        said = score >= threshold
        recall = truth[said].sum() / truth.sum()
        total, before = total + (recall - before) * truth[said].mean(), recall
    assert measured(metrics.average_precision, score, truth) == pytest.approx(total)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_balanced_accuracy_and_f1_by_counting(pairs):
    said, truth = (np.array(column) for column in zip(*pairs, strict=True))
    recalls, scores = [], []
    for one in set(truth.tolist()):
        tp = sum(a == b == one for a, b in pairs)
        fp, fn = sum(a == one != b for a, b in pairs), sum(b == one != a for a, b in pairs)
        recalls.append(tp / (tp + fn))
        scores.append(2 * tp / (2 * tp + fp + fn))
    assert measured(metrics.balanced_accuracy, said, truth) == pytest.approx(np.mean(recalls))
    assert measured(metrics.macro_f1, said, truth) == pytest.approx(np.mean(scores))


def test_log_loss_and_brier_of_what_is_known():
    chances = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]])
    assert measured(metrics.log_loss, chances, np.array([0, 1])) == pytest.approx(
        -(math.log(0.7) + math.log(0.8)) / 2
    )
    assert measured(metrics.brier, chances, np.array([0, 1])) == pytest.approx(
        ((0.09 + 0.04 + 0.01) + (0.01 + 0.04 + 0.01)) / 2
    )


def test_a_binary_brier_score_is_the_mean_squared_error_of_the_chance():
    found = tasks.Binary().metrics(np.array([[0.0], [math.log(3)]]), np.array([0.0, 1.0]))
    assert found["Brier"] == pytest.approx((0.25 + 0.0625) / 2)


def test_chances_that_are_no_numbers_are_in_no_bin_and_break_nothing():
    """Fault: a run that diverged to scores of nan ended in a traceback, after its last round."""
    chance, truth = np.array([np.nan, 0.95, np.nan, 1.0]), np.array([1, 1, 0, 1])
    assert metrics.calibration_curve(chance, truth) == [(pytest.approx(0.975), 1.0, 2)]
    assert np.isnan(measured(metrics.calibration_error, chance, truth))


def test_calibration_is_what_was_said_against_what_was_so():
    chance, truth = np.array([0.05, 0.07, 0.95, 1.0]), np.array([0, 1, 1, 1])
    assert metrics.calibration_curve(chance, truth) == [
        (pytest.approx(0.06), 0.5, 2),
        (pytest.approx(0.975), 1.0, 2),
    ]
    assert measured(metrics.calibration_error, chance, truth) == pytest.approx((0.44 + 0.025) / 2)


def test_poisson_deviance_is_twice_the_likelihood_ratio():
    truth, rate = np.array([0.0, 1.0, 4.0]), np.array([0.5, 1.0, 2.0])
    full = np.where(truth > 0, stats.poisson.logpmf(truth, np.maximum(truth, 1e-9)), 0.0)
    assert measured(metrics.poisson_deviance, rate, truth) == pytest.approx(
        2 * (full - stats.poisson.logpmf(truth, rate)).mean()
    )
    assert measured(metrics.explained_deviance, np.full(3, truth.mean()), truth) == pytest.approx(
        0.0
    )


def test_numbers_are_measured_in_their_own_unit():
    found = tasks.Regression(centre=100.0, scale=10.0).metrics(
        np.array([[0.0], [1.0]]), np.array([105.0, 110.0])
    )
    assert found["MAE"] == pytest.approx(2.5)
    assert found["RMSE"] == pytest.approx(math.sqrt(12.5))
    assert found["R^2"] == pytest.approx(1 - 25 / 12.5)


def test_levels_are_counted_by_the_questions_answered_with_yes():
    found = tasks.Ordinal(4).metrics(
        np.array([[1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]]), np.array([2, 3])
    )
    assert found["mean distance"] == 1.5
    assert found["accuracy"] == 0.5


def test_tokens_that_do_not_count_are_not_measured():
    scores = np.zeros((1, 2, 4))
    found = tasks.NextToken(4).metrics(scores, np.array([[0, -100]]))
    assert found["perplexity"] == pytest.approx(4.0)
    assert found["accuracy"] == 1.0


def test_one_class_only_has_no_auc():
    found = tasks.Binary().metrics(np.array([[0.2], [0.4]]), np.array([1.0, 1.0]))
    assert math.isnan(found["AUC"])
    assert found["accuracy"] == 1.0


def test_an_interval_is_that_of_the_accuracy_of_a_coin():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    scores = np.stack(
        [np.zeros(1000), np.where(rng.random(1000) < 0.8, 1, -1) * np.where(y == 1, 1, -1)], axis=1
    )
    low, high = intervals(tasks.MultiClass(2), scores, y)["accuracy"]
    assert (high - low) / 2 == pytest.approx(1.96 * math.sqrt(0.8 * 0.2 / 1000), rel=0.25)
    assert low < 0.8 < high


def test_rows_of_one_owner_are_drawn_together():
    """Ten rows each that agree: the interval is that of a tenth as many, over three times as
    wide.
    """
    rng = np.random.default_rng(1)
    right = np.repeat(rng.random(100) < 0.7, 10)
    scores = np.stack([np.zeros(1000), np.where(right, 1.0, -1.0)], axis=1)
    y, owners = np.ones(1000, int), np.repeat(np.arange(100), 10)
    alone, together = (
        intervals(tasks.MultiClass(2), scores, y, who)["accuracy"] for who in (None, owners)
    )
    assert (together[1] - together[0]) / (alone[1] - alone[0]) == pytest.approx(
        math.sqrt(10), rel=0.3
    )


def test_many_classes_are_measured_as_each_by_itself() -> None:
    """All ranked and counted at once, against one class after another; with ties, and a class that
    nobody has.
    """
    rng = np.random.default_rng(0)
    truth, chances = rng.choice([0, 1, 3], 60), rng.integers(0, 6, (60, 4)) / 6
    said = chances.argmax(1)
    each = [measured(metrics.auc, chances[:, one], (truth == one).astype(int)) for one in (0, 1, 3)]
    assert measured(metrics.auc_against_rest, chances, truth) == pytest.approx(np.mean(each))
    f1 = [
        measured(metrics.f1, (said == one).astype(int), (truth == one).astype(int))
        for one in (0, 1, 3)
    ]
    assert measured(metrics.macro_f1, said, truth) == pytest.approx(np.mean(f1))
    found = [(said[truth == one] == one).mean() for one in (0, 1, 3)]
    assert measured(metrics.balanced_accuracy, said, truth) == pytest.approx(np.mean(found))


@pytest.mark.parametrize("task", [tasks.Binary(), tasks.MultiClass(3)], ids=lambda task: task.name)
def test_chances_that_are_so_lie_on_the_diagonal(task) -> None:
    rng = np.random.default_rng(0)
    scores = 2 * rng.normal(size=(40_000, task.outputs))
    chances = (
        metrics.softmax(scores)
        if task.name == "classes"
        else metrics.sigmoid(np.hstack([-scores, scores]))
    )
    y = (rng.random((len(scores), 1)) > chances.cumsum(1)).sum(1).clip(max=chances.shape[1] - 1)
    curve = calibration(task, scores, y)
    assert sum(count for *_, count in curve) == len(y)
    assert all(abs(said - was) < 0.06 for said, was, count in curve if count > 300)
    wrong = calibration(task, 3 * scores, y)
    assert max(abs(said - was) for said, was, count in wrong if count > 300) > 0.06
    assert (
        task.metrics(scores, y)["calibration error"]
        < 0.02
        < task.metrics(3 * scores, y)["calibration error"]
    )


def test_tasks_without_chances_have_no_curve() -> None:
    assert calibration(tasks.Counts(), np.zeros((3, 1)), np.ones(3)) == []


FORMS: dict[tasks.Task, tuple[int, ...]] = {
    tasks.MultiClass(3): (),
    tasks.Binary(): (),
    tasks.MultiLabel(2): (2,),
    tasks.Ordinal(3): (),
    tasks.Regression(): (),
    tasks.Counts(2.0): (),
    tasks.NextToken(3): (4,),
}
"""Every task, with the form of a label."""


def outcome(task: tasks.Task, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores, some of them equal, and labels."""
    rng, places = np.random.default_rng(seed), FORMS[task] if task.name == "tokens" else ()
    return rng.normal(size=(count, *places, task.outputs)).round(1), rng.integers(
        0, 2, (count, *FORMS[task])
    )


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("task", FORMS, ids=lambda task: task.name)
def test_intervals_are_those_of_samples_drawn_one_after_another(task, owned) -> None:
    """All sets are measured at once, by how often a sample is in each: the figures are of the drawn
    rows themselves.
    """
    scores, y = outcome(task, 30)
    owners = np.random.default_rng(1).integers(0, 12, 30) if owned else np.arange(30)
    rng, names, found = np.random.default_rng(0), np.unique(owners), []
    for _ in range(20):
        rows = np.concatenate(
            [
                np.flatnonzero(owners == names[one])
                for one in rng.integers(0, len(names), len(names))
            ]
        )
        found.append(task.metrics(scores[rows], y[rows]))
    expected = {
        name: np.nanpercentile([one[name] for one in found], [2.5, 97.5]) for name in found[0]
    }
    at_once = intervals(task, scores, y, owners if owned else None, draws=20)
    assert {name: pytest.approx(tuple(ends)) for name, ends in expected.items()} == at_once


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("task", FORMS, ids=lambda task: task.name)
def test_what_is_not_defined_for_one_sample_is_nan(task) -> None:
    scores, y = outcome(task, 1)
    undefined = (
        {"AUC", "average precision", "R^2", "explained deviance"}
        if not y.any()
        else {"AUC", "R^2", "explained deviance"}
    )
    found = intervals(task, scores, y)
    assert {name for name, ends in found.items() if math.isnan(ends[0])} == undefined & set(found)


@pytest.mark.filterwarnings("error")
def test_of_no_places_that_count_nothing_is_said() -> None:
    task = tasks.NextToken(3)
    assert all(
        math.isnan(figure)
        for figure in task.metrics(np.zeros((2, 4, 3)), np.full((2, 4), -100)).values()
    )
    assert all(
        math.isnan(end)
        for ends in intervals(task, np.zeros((2, 4, 3)), np.full((2, 4), -100)).values()
        for end in ends
    )
