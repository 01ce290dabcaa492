"""Metrics of numbers and counts against their definitions."""

import numpy as np
import pytest
from scipy import stats

from dpfl.tasks import number_metrics
from tests.tasks.test_metrics import measured


def test_poisson_deviance_is_twice_the_likelihood_ratio():
    truth, rate = np.array([0.0, 1.0, 4.0]), np.array([0.5, 1.0, 2.0])
    full = np.where(truth > 0, stats.poisson.logpmf(truth, np.maximum(truth, 1e-9)), 0.0)
    assert measured(number_metrics.poisson_deviance, rate, truth) == pytest.approx(
        2 * (full - stats.poisson.logpmf(truth, rate)).mean()
    )
    assert measured(
        number_metrics.explained_deviance, np.full(3, truth.mean()), truth
    ) == pytest.approx(0.0)
