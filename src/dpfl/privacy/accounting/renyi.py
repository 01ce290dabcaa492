"""Renyi divergences of a Gaussian release whose units are drawn by coins (Mironov, Talwar and Zhang
2019), all orders at once.

The sums are those of dp-accounting, cut off where it cuts them, by whole arrays in the place of a
loop for every order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpfl.lazy_import import special

BLOCK, MOST = 50, 1000
"""Terms of a series at a time, and after which an order counts as infinite."""

SMALL = 30.0
"""A series ends where its terms fall, and are smaller than the sum by this much, in logarithms."""


def sampled_divergences(
    rate: float, noise_multiplier: float, orders: Sequence[float]
) -> np.ndarray:
    """log(A_alpha) / (alpha - 1) for 0 < rate < 1; infinite for an order whose series does not
    end.
    """
    given = np.asarray(orders, dtype=np.float64)
    whole, found = given == np.floor(given), np.empty(len(given))
    found[whole] = _of_whole_orders(rate, noise_multiplier, given[whole])
    found[~whole] = _of_other_orders(rate, noise_multiplier, given[~whole])
    return found.clip(min=0.0) / (given - 1)


def _of_whole_orders(rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """log sum_k C(alpha, k) (1 - q)^(alpha - k) q^k exp((k^2 - k) / 2 z^2)."""
    found = np.empty(len(orders))
    factorials = special.gammaln(np.arange(1, orders.max(initial=0) + 2))
    for place, order in enumerate(orders.astype(int)):
        k = np.arange(order + 1)
        chosen = factorials[order] - factorials[k] - factorials[order - k]
        terms = (
            chosen
            + k * math.log(rate)
            + (order - k) * math.log1p(-rate)
            + (k * k - k) / (2 * noise_multiplier**2)
        )
        largest = terms.max()
        found[place] = largest + math.log(np.exp(terms - largest).sum())
    return found


def _of_other_orders(rate: float, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
    """The integral below and above the point where both densities are equal, each as a series
    (section 3.3).
    """
    found, left = np.full(len(orders), math.inf), np.arange(len(orders))
    sums, last = np.full((2, len(orders)), -math.inf), np.full((2, len(orders)), -math.inf)
    for start in range(0, MOST, BLOCK):
        terms = _terms(rate, noise_multiplier, orders[left, None], np.arange(start, start + BLOCK))
        upto = np.logaddexp.accumulate(np.concatenate([sums[..., None], terms], axis=2), axis=2)[
            ..., 1:
        ]
        falling = (terms < np.concatenate([last[..., None], terms[..., :-1]], axis=2)).all(0)
        total = np.logaddexp(*upto)
        ended = falling & (terms.max(0) < total - SMALL)
        at, done = ended.argmax(1), ended.any(1)
        found[left[done]] = total[done, at[done]]
        left, sums, last = left[~done], upto[:, ~done, -1], terms[:, ~done, -1]
        if not len(left):
            break
    return found


def _terms(rate: float, noise_multiplier: float, orders: np.ndarray, i: np.ndarray) -> np.ndarray:
    """The logarithms of terms i of both series (2, orders, i), all taken as positive."""
    equal, j = noise_multiplier**2 * math.log(1 / rate - 1) + 0.5, orders - i
    chosen = special.gammaln(orders + 1) - special.gammaln(i + 1) - special.gammaln(j + 1)
    drawn, others = math.log(rate), math.log1p(-rate)
    below = (
        i * drawn
        + j * others
        + (i * i - i) / (2 * noise_multiplier**2)
        + special.log_ndtr((equal - i) / noise_multiplier)
    )
    above = (
        j * drawn
        + i * others
        + (j * j - j) / (2 * noise_multiplier**2)
        + special.log_ndtr((j - equal) / noise_multiplier)
    )
    return np.stack([chosen + below, chosen + above])
