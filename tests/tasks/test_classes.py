"""Metrics of tasks with classes, as each task defines them."""

import math

import numpy as np
import pytest

from dpfl import tasks


def test_a_binary_brier_score_is_the_mean_squared_error_of_the_chance():
    found = tasks.Binary().metrics(np.array([[0.0], [math.log(3)]]), np.array([0.0, 1.0]))
    assert found["Brier"] == pytest.approx((0.25 + 0.0625) / 2)


def test_levels_are_counted_by_the_questions_answered_with_yes():
    found = tasks.Ordinal(4).metrics(
        np.array([[1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]]), np.array([2, 3])
    )
    assert found["mean distance"] == 1.5
    assert found["accuracy"] == 0.5


def test_one_class_only_has_no_auc():
    found = tasks.Binary().metrics(np.array([[0.2], [0.4]]), np.array([1.0, 1.0]))
    assert math.isnan(found["AUC"])
    assert found["accuracy"] == 1.0
