"""Detectors and thresholds of the game of two worlds."""

import numpy as np
import pytest

from dpfl.audit.bounds import epsilon_of
from dpfl.audit.measurements.distinguish import (
    best_threshold,
    detector,
    distinguish_gaussian,
    guess,
    whiten,
)
from dpfl.privacy import Keyed


def noise(trials: int, rng: np.random.Generator) -> np.ndarray:
    """Two numbers, the second with a tenth of the noise."""
    return rng.standard_normal((trials, 2)) * np.array([1.0, 0.1])


def mechanism(within: bool, trials: int, rng: np.random.Generator) -> np.ndarray:
    return noise(trials, rng) + 0.1 * within


def test_a_detector_looks_where_there_is_little_noise() -> None:
    outs = noise(20_000, np.random.default_rng(0))
    direction, separation = whiten(outs, np.array([0.1, 0.1]))
    assert direction[1] / direction[0] == pytest.approx(100, rel=0.2)
    assert separation == pytest.approx((0.01 + 1) ** 0.5, rel=0.02)
    scores = detector(outs, np.array([0.1, 0.1]))(outs)
    assert scores.std() == pytest.approx(1, rel=0.02)
    assert scores.mean() == pytest.approx(-separation / 2, rel=0.02)


def test_a_number_without_noise_separates_the_worlds() -> None:
    outs = np.stack([np.random.default_rng(0).standard_normal(500), np.zeros(500)], axis=1)
    assert whiten(outs, np.array([0.0, 1.0]))[1] > 1e3


def test_wrong_guesses_are_counted_on_both_sides() -> None:
    counts = guess(np.array([0.0, 1.0, 2.0]), np.array([1.5, 2.0]), 1.0)
    assert (counts.false_positives, counts.outs) == (1, 3)
    assert (counts.false_negatives, counts.ins) == (0, 2)
    threshold = best_threshold(np.zeros(400), np.ones(400), 1e-5, 0.95)
    assert 0 <= threshold < 1


def test_the_bound_for_gaussian_noise_lies_below_the_truth_and_near_it() -> None:
    truth = epsilon_of((0.01 + 1) ** 0.5, 1e-5)
    score = detector(noise(4000, np.random.default_rng(1)), np.array([0.1, 0.1]), np.zeros(2))
    normal = distinguish_gaussian(mechanism, score, 1e-5, 4000, 0.95, Keyed(0))
    assert 0.85 * truth < normal.epsilon <= truth
