"""The privacy loss distribution of one sampled Gaussian release, on a grid.

The distribution is pessimistic by "connect the dots" (Doroshenko et al. 2022): its delta(epsilon)
equals the mechanism's at every point of the grid, and lies above it in between. It is the
distribution of dp-accounting's `from_gaussian_mechanism`, which inverts the loss by one Python call
per point. Here all points are inverted at once.
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
    """Computes the losses of a Gaussian release on a Poisson sample.

    Args:
        noise_multiplier: The noise's standard deviation over the sensitivity.
        rate: The sampling rate; 1 for all of the data.
        interval: The width of the grid.

    Returns:
        The losses for a unit that is removed and for one that is added. Without sampling they are
        the same.
    """
    change = pld.privacy_loss_mechanism.AdjacencyType
    removed_losses = _discretise(noise_multiplier, rate, interval, change.REMOVE)
    if rate == 1:
        return LossGridPair(removed_losses, removed_losses)
    return LossGridPair(removed_losses, _discretise(noise_multiplier, rate, interval, change.ADD))


def _discretise(
    noise_multiplier: float, rate: float, interval: float, adjacency: AdjacencyType
) -> LossGrid:
    losses = pld.privacy_loss_mechanism.GaussianPrivacyLoss(
        noise_multiplier, sampling_prob=rate, adjacency_type=adjacency
    )
    bounds = losses.connect_dots_bounds()
    low = math.floor(bounds.epsilon_lower / interval)
    high = math.ceil(bounds.epsilon_upper / interval)
    epsilons = np.arange(low, high + 1) * interval
    return connect_dots(interval, low, _deltas(losses, noise_multiplier, rate, epsilons))


def connect_dots(interval: float, low: int, deltas: np.ndarray) -> LossGrid:
    """Builds the distribution on a grid that has a given delta at every point.

    Between two points its delta is the straight line in e^epsilon. The mechanism's own delta is
    convex in e^epsilon and so lies below that line.

    Args:
        interval: The width of the grid.
        low: The first point, in intervals.
        deltas: The mechanism's delta at every point.

    Returns:
        The distribution.
    """
    # None may grow with epsilon, which rounding makes some do.
    deltas = np.maximum.accumulate(deltas[::-1])[::-1]
    falls, masses = deltas[:-1] - deltas[1:], np.empty_like(deltas)
    masses[1:-1] = (falls[:-1] * math.exp(interval) - falls[1:]) / math.expm1(interval)
    masses[-1] = falls[-1] / -math.expm1(-interval) if len(falls) else 0.0
    masses[0] = 1 - deltas[0] - (falls[0] / math.expm1(interval) if len(falls) else 0.0)
    return LossGrid(interval, low, masses.clip(min=0.0), float(deltas[-1]))


def _deltas(
    losses: GaussianPrivacyLoss, noise_multiplier: float, rate: float, epsilons: np.ndarray
) -> np.ndarray:
    """Computes delta(epsilon) = P[output <= x] - e^epsilon Q[output <= x], at loss(x) = epsilon."""
    is_removal = losses.adjacency_type == pld.privacy_loss_mechanism.AdjacencyType.REMOVE
    sign = 1 if is_removal else -1
    # Beyond log(1 - q) all of the losses are on one side.
    inside = sign * epsilons > (math.log1p(-rate) if rate < 1 else -math.inf)
    deltas: np.ndarray = -np.expm1(epsilons) if is_removal else np.zeros_like(epsilons)
    unsampled_losses = sign * _undo_sampling(sign * epsilons[inside], rate)
    x = (0 if is_removal else 1) + (-0.5 - unsampled_losses * noise_multiplier**2)
    deltas[inside] = losses.mu_upper_cdf(x) - np.exp(epsilons[inside] + losses.mu_lower_log_cdf(x))
    return deltas.clip(0, 1)


def _undo_sampling(losses: np.ndarray, rate: float) -> np.ndarray:
    """Computes log(1 + (e^loss - 1) / q): the loss that becomes this one by sampling.

    It is -inf at the bound log(1 - q). Rounded as dp-accounting rounds it, so that the figures are
    the same to the last bit.
    """
    if rate == 1:
        return losses
    scaled_losses, rest = losses + np.log(1 / rate), np.log(1 / rate - 1)
    with np.errstate(divide="ignore"):
        unsampled_losses: np.ndarray = scaled_losses + np.log1p(
            -np.exp(np.minimum(rest - scaled_losses, 0.0))
        )
    unsampled_losses[losses == 0] = np.log(1 / rate + (1 - 1 / rate))
    unsampled_losses[np.isclose(losses, math.log(1 - rate), rtol=1e-9, atol=0)] = -np.inf
    return unsampled_losses
