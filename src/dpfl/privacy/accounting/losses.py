"""The privacy losses of a sampled Gaussian release, on a grid.

The same pessimistic distribution ("connect the dots", Doroshenko et al. 2022) as dp-accounting's
`from_gaussian_mechanism`, which inverts the loss by a Python call for each point of the grid; here
it is inverted for all of them at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpfl.lazy_import import pld
from dpfl.privacy.accounting.loss_grid import LossGrid, LossGridPair

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss


def gaussian_losses(noise_multiplier: float, rate: float, interval: float) -> LossGridPair:
    """Without sampling the losses are the same for a record that is removed and for one that is
    added.
    """
    change = pld.privacy_loss_mechanism.AdjacencyType
    removed = _discrete(noise_multiplier, rate, interval, change.REMOVE)
    return LossGridPair(
        removed, removed if rate == 1 else _discrete(noise_multiplier, rate, interval, change.ADD)
    )


def _discrete(
    noise_multiplier: float, rate: float, interval: float, adjacency: AdjacencyType
) -> LossGrid:
    losses = pld.privacy_loss_mechanism.GaussianPrivacyLoss(
        noise_multiplier, sampling_prob=rate, adjacency_type=adjacency
    )
    bounds = losses.connect_dots_bounds()
    low, high = (
        math.floor(bounds.epsilon_lower / interval),
        math.ceil(bounds.epsilon_upper / interval),
    )
    return connected(
        interval, low, _deltas(losses, noise_multiplier, rate, np.arange(low, high + 1) * interval)
    )


def connected(interval: float, low: int, deltas: np.ndarray) -> LossGrid:
    """The losses on the grid whose delta is given at every point of it, and between two of them on
    the straight line (in e^epsilon), where the mechanism's own lies below it."""
    deltas = np.maximum.accumulate(deltas[::-1])[
        ::-1
    ]  # none may grow with epsilon, which rounding makes some do
    falls, chances = deltas[:-1] - deltas[1:], np.empty_like(deltas)
    chances[1:-1] = (falls[:-1] * math.exp(interval) - falls[1:]) / math.expm1(interval)
    chances[-1] = falls[-1] / -math.expm1(-interval) if len(falls) else 0.0
    chances[0] = 1 - deltas[0] - (falls[0] / math.expm1(interval) if len(falls) else 0.0)
    return LossGrid(interval, low, chances.clip(min=0.0), float(deltas[-1]))


def _deltas(
    losses: GaussianPrivacyLoss, noise_multiplier: float, rate: float, epsilons: np.ndarray
) -> np.ndarray:
    """delta(epsilon) = P[output <= x] - e^epsilon Q[output <= x], with x where the loss is
    epsilon.
    """
    removed = losses.adjacency_type == pld.privacy_loss_mechanism.AdjacencyType.REMOVE
    sign = 1 if removed else -1
    inside = sign * epsilons > (
        math.log1p(-rate) if rate < 1 else -math.inf
    )  # beyond, all of the losses are on one side
    deltas: np.ndarray = -np.expm1(epsilons) if removed else np.zeros_like(epsilons)
    unsampled = sign * _unsampled(sign * epsilons[inside], rate)
    x = (0 if removed else 1) + (-0.5 - unsampled * noise_multiplier**2)
    deltas[inside] = losses.mu_upper_cdf(x) - np.exp(epsilons[inside] + losses.mu_lower_log_cdf(x))
    return deltas.clip(0, 1)


def _unsampled(losses: np.ndarray, rate: float) -> np.ndarray:
    """log(1 + (e^loss - 1) / q): the loss without sampling that becomes this one by sampling; -inf
    at the bound log(1 - q).

    Rounded as dp-accounting rounds it, so that the figures are the same to the last bit.
    """
    if rate == 1:
        return losses
    scaled, rest = losses + np.log(1 / rate), np.log(1 / rate - 1)
    with np.errstate(divide="ignore"):
        found: np.ndarray = scaled + np.log1p(-np.exp(np.minimum(rest - scaled, 0.0)))
    found[losses == 0] = np.log(1 / rate + (1 - 1 / rate))
    found[np.isclose(losses, math.log(1 - rate), rtol=1e-9, atol=0)] = -np.inf
    return found
