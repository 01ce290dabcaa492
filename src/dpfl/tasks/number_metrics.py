"""Metrics of predicted numbers and counts on test sets, in float64.

As in `metrics.py`, every metric is computed for several test sets at once, and is NaN where it is
not defined.
"""

from __future__ import annotations

import numpy as np

from dpfl.tasks.metrics import SMALLEST, Array, mean, over


def root_mean_square(apart: Array, times: Array) -> Array:
    """Computes sqrt(mean e^2).

    Args:
        apart: The error e of each sample.
        times: How often each sample is in each set.

    Returns:
        The root (sets,).
    """
    return np.sqrt(mean(np.square(apart), times))


def r_squared(predictions: Array, truth: Array, times: Array) -> Array:
    """Computes R^2: 1 - squared errors over squared distances to the mean.

    Args:
        predictions: The predicted numbers.
        truth: The labels.
        times: How often each sample is in each set.

    Returns:
        R^2 (sets,).
    """
    deviations = truth - (truth.mean() if len(truth) else 0.0)
    spread = mean(np.square(deviations), times) - np.square(mean(deviations, times))
    return np.where(
        _varies(truth, times), 1 - over(mean(np.square(predictions - truth), times), spread), np.nan
    )


def _varies(truth: Array, times: Array) -> Array:
    """Says whether a set has more than one value."""
    there, value = times > 0, truth[:, None]
    largest: Array = np.where(there, value, -np.inf).max(0, initial=-np.inf)
    return largest > np.where(there, value, np.inf).min(0, initial=np.inf)


def poisson_deviance(rate: Array, truth: Array, times: Array) -> Array:
    """Computes 2 mean(y log(y / rate) - (y - rate)), where 0 log 0 is 0.

    Args:
        rate: The predicted rates.
        truth: The counts y.
        times: How often each sample is in each set.

    Returns:
        The deviance (sets,).
    """
    return 2 * mean(_logs(truth) - truth * np.log(np.maximum(rate, SMALLEST)) - truth + rate, times)


def _logs(truth: Array) -> Array:
    return truth * np.log(np.where(truth > 0, truth, 1.0))


def explained_deviance(rate: Array, truth: Array, times: Array) -> Array:
    """Computes 1 - deviance over that of one rate m for all, 2 (mean(y log y) - m log m).

    Args:
        rate: The predicted rates.
        truth: The counts y.
        times: How often each sample is in each set.

    Returns:
        The explained deviance (sets,).
    """
    usual = mean(truth, times)
    alone = 2 * (mean(_logs(truth), times) - usual * np.log(np.where(usual > 0, usual, 1.0)))
    return np.where(
        _varies(truth, times), 1 - over(poisson_deviance(rate, truth, times), alone), np.nan
    )
