"""Renyi divergences of the Poisson-sampled Gaussian mechanism, for all orders at once.

The formulas are those of Mironov, Talwar and Zhang (2019), "Renyi differential privacy of the
sampled Gaussian mechanism", section 3.3. The series end where dp-accounting ends them. The sums run
over whole arrays, where dp-accounting loops over the orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpfl.lazy_import import special

BLOCK_TERMS = 50
"""Terms of a series that are summed at a time."""

MAX_TERMS = 1000
"""An order whose series has not ended after so many terms counts as infinite."""

NEGLIGIBLE_LOG = 30.0
"""A series ends where its terms fall and are below the sum by this much, in logarithms."""


def sampled_divergences(
    rate: float, noise_multiplier: float, orders: Sequence[float]
) -> np.ndarray:
    """Computes log(A_alpha) / (alpha - 1), the Renyi divergence of one release, for each order.

    Args:
        rate: The sampling rate q, strictly between 0 and 1.
        noise_multiplier: The noise's standard deviation over the sensitivity.
        orders: The orders alpha, above 1.

    Returns:
        One divergence per order; infinite for an order whose series does not end.
    """
    alphas = np.asarray(orders, dtype=np.float64)
    integer = alphas == np.floor(alphas)
    log_moments = np.empty(len(alphas))
    log_moments[integer] = _integer_orders(rate, noise_multiplier, alphas[integer])
    log_moments[~integer] = _fractional_orders(rate, noise_multiplier, alphas[~integer])
    return log_moments.clip(min=0.0) / (alphas - 1)


def _integer_orders(rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """Computes log sum_k C(alpha, k) (1 - q)^(alpha - k) q^k exp((k^2 - k) / (2 z^2))."""
    log_moments = np.empty(len(orders))
    factorials = special.gammaln(np.arange(1, orders.max(initial=0) + 2))
    for place, order in enumerate(orders.astype(int)):
        k = np.arange(order + 1)
        binomials = factorials[order] - factorials[k] - factorials[order - k]
        terms = (
            binomials
            + k * math.log(rate)
            + (order - k) * math.log1p(-rate)
            + (k * k - k) / (2 * noise_multiplier**2)
        )
        largest = terms.max()
        log_moments[place] = largest + math.log(np.exp(terms - largest).sum())
    return log_moments


def _fractional_orders(rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """Sums two series: the integral below and above the point where both densities are equal."""
    log_moments, remaining_orders = np.full(len(orders), math.inf), np.arange(len(orders))
    sums = np.full((2, len(orders)), -math.inf)
    last = np.full((2, len(orders)), -math.inf)
    for start in range(0, MAX_TERMS, BLOCK_TERMS):
        places = np.arange(start, start + BLOCK_TERMS)
        terms = _terms(rate, noise_multiplier, orders[remaining_orders, None], places)
        series = np.concatenate([sums[..., None], terms], axis=2)
        partial_sums = np.logaddexp.accumulate(series, axis=2)[..., 1:]
        previous = np.concatenate([last[..., None], terms[..., :-1]], axis=2)
        falling = (terms < previous).all(0)
        total = np.logaddexp(*partial_sums)
        is_negligible = falling & (terms.max(0) < total - NEGLIGIBLE_LOG)
        at, is_finished = is_negligible.argmax(1), is_negligible.any(1)
        log_moments[remaining_orders[is_finished]] = total[is_finished, at[is_finished]]
        remaining_orders = remaining_orders[~is_finished]
        sums, last = partial_sums[:, ~is_finished, -1], terms[:, ~is_finished, -1]
        if not len(remaining_orders):
            break
    return log_moments


def _terms(rate: float, noise_multiplier: float, orders: np.ndarray, i: np.ndarray) -> np.ndarray:
    """Computes the logarithms of terms i of both series (2, orders, i), all taken as positive."""
    equal, j = noise_multiplier**2 * math.log(1 / rate - 1) + 0.5, orders - i
    binomials = special.gammaln(orders + 1) - special.gammaln(i + 1) - special.gammaln(j + 1)
    log_rate, log_rest = math.log(rate), math.log1p(-rate)
    below = (
        i * log_rate
        + j * log_rest
        + (i * i - i) / (2 * noise_multiplier**2)
        + special.log_ndtr((equal - i) / noise_multiplier)
    )
    above = (
        j * log_rate
        + i * log_rest
        + (j * j - j) / (2 * noise_multiplier**2)
        + special.log_ndtr((j - equal) / noise_multiplier)
    )
    return np.stack([binomials + below, binomials + above])
