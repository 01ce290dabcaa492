"""Metrics of classes against their definitions, by brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.tasks import metrics


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
