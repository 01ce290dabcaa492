"""Accountants: from events to epsilon at delta.

An accountant composes a multiset of events and returns the epsilon that holds for all of them
together. There are four:

- `pld` composes privacy loss distributions (`loss_grid.py`). It is tight up to its grid and rounds
  every error upwards. Gaussians without sampling are exact (Balle and Wang 2018).
- `rdp` composes Renyi divergences (Mironov 2017; `renyi.py`) and converts them by the bound of
  Canonne, Kamath and Steinke (2020).
- `rdp-classic` converts them by eps + log(1 / delta) / (alpha - 1) (Mironov 2017, Proposition 3),
  with the orders that the first DP-SGD papers used.
- `gdp-clt` is a central limit theorem (Bu et al. 2020). It can lie below the truth.

The first three are proven upper bounds. Only they guard a budget (`proven_accountant`) or stand in
a statement as proven. `gdp-clt` only shows what a paper claims.

Every figure is computed once per process: events are hashable, and the caches below are keyed by
them. An order of events is fixed first, because the last bits of a floating-point sum depend on it,
and planned noise depends on those bits.

    >>> accountant("pld").epsilon({gaussian(1.0): 10}, delta=1e-5)
    17.856...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dpfl.bad_values import choose
from dpfl.deprecation import renamed_keywords
from dpfl.errors import DpflError
from dpfl.lazy_import import dp, special
from dpfl.privacy.accounting.events import REPLACE, Event, EventCounts, encode, neighbours_of
from dpfl.privacy.accounting.loss_grid import LossGridPair
from dpfl.privacy.accounting.losses import gaussian_losses
from dpfl.privacy.accounting.renyi import sampled_divergences

CLASSIC_ORDERS = [*range(2, 64), 128, 256, 512]
"""The Renyi orders of the first DP-SGD papers."""

DISCRETISATION = 1e-4
"""The width of the grid for the figures in statements."""

COARSE = 1e-3
"""A grid that is ten times as quick. Its figures lie about 1e-4 above, and are upper bounds too."""

ROUGH = 4e-3
"""A grid for figures during a run. They lie about 2e-3 above."""

HUGE_EPSILON = 200.0
"""Above this epsilon nothing is protected, and the losses need a grid that does not fit into
memory. Quick bounds then give the figure.
"""

FrozenEvents = frozenset[tuple[Any, int]]
"""Events with their counts, as a key of a cache."""


@dataclass(frozen=True)
class Accountant:
    """A way to turn events into epsilon at delta.

    Attributes:
        name: The name that experiments and statements use.
        proven: Whether every figure is a proven upper bound.
        bounds: Bounds on epsilon that each hold by themselves. The least of them counts.
        quick: A cheaper upper bound on the same figure, for decisions that it can settle.
    """

    name: str
    proven: bool
    bounds: tuple[Callable[[FrozenEvents, float], float], ...]
    quick: Accountant | None = None

    @renamed_keywords(spent="events")
    def epsilon(self, events: EventCounts, delta: float) -> float:
        """Computes the epsilon of all events together.

        Args:
            events: How many times each event was released.
            delta: The target delta.

        Returns:
            Epsilon; 0 without events, and infinite where an event has no noise.
        """
        frozen = frozenset((event, count) for event, count in events.items() if count > 0)
        if not frozen:
            return 0.0
        if any(isinstance(event, dp.NonPrivateDpEvent) for event, _ in frozen):
            return math.inf
        epsilons = [_bound_epsilon(bound, frozen, delta) for bound in self.bounds]
        return min(math.inf if math.isnan(epsilon) else epsilon for epsilon in epsilons)


def _bound_epsilon(
    bound: Callable[[FrozenEvents, float], float], events: FrozenEvents, delta: float
) -> float:
    """Returns infinity, which is never too small, where a figure overflows."""
    try:
        return bound(events, delta)
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _in_order(events: Iterable[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Sorts events by their written form.

    The order of a set changes from process to process, and with it the last bits of a sum. Noise is
    planned from these sums, so without an order one seed would give several models.
    """
    return sorted(events, key=lambda pair: (_event_text(pair[0]), pair[1]))


def _event_text(event: Any) -> str:
    try:
        return encode(event)
    except DpflError:
        return str(event)


def _relation(events: FrozenEvents) -> dp.NeighboringRelation:
    relation = dp.NeighboringRelation
    replace = neighbours_of(event for event, _ in events) == REPLACE
    return relation.REPLACE_ONE if replace else relation.ADD_OR_REMOVE_ONE


@lru_cache(maxsize=64)
def _pld_of(event: Event, interval: float) -> LossGridPair:
    rate, noise = 1.0, event
    if isinstance(event, dp.PoissonSampledDpEvent):
        rate, noise = event.sampling_probability, event.event
    return gaussian_losses(noise.noise_multiplier, rate, interval)


@lru_cache(maxsize=4096)
def _pld_epsilon(events: FrozenEvents, delta: float, interval: float = DISCRETISATION) -> float:
    """Uses privacy losses: exact without sampling, quick bounds where no grid can hold them."""
    unsampled_epsilon = _unsampled_epsilon(events, delta)
    if all(isinstance(event, dp.GaussianDpEvent) for event, _ in events):
        return unsampled_epsilon
    huge = unsampled_epsilon > HUGE_EPSILON and _second_order_epsilon(events, delta) > HUGE_EPSILON
    if huge and (quick := min(unsampled_epsilon, _rdp_epsilon(events, delta))) > HUGE_EPSILON:
        return quick
    return _compose(events, interval).epsilon(delta)


def _compose(events: FrozenEvents, interval: float) -> LossGridPair:
    ordered_events = _in_order(events)
    precision = sum(
        count / event.noise_multiplier**2
        for event, count in ordered_events
        if isinstance(event, dp.GaussianDpEvent)
    )
    parts = [
        _pld_of(event, interval).self_compose(count)
        for event, count in ordered_events
        if not isinstance(event, dp.GaussianDpEvent)
    ]
    if precision:  # Gaussians on the same data compose to one Gaussian
        parts.append(_pld_of(dp.GaussianDpEvent(1 / math.sqrt(precision)), interval))
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return total


@lru_cache(maxsize=256)
def _multiple(start: FrozenEvents, event: Event, stride: int, multiple: int) -> LossGridPair:
    """Composes the start and a multiple of `stride` releases, from the multiple before."""
    if multiple > 1:
        before = _multiple(start, event, stride, multiple - 1)
        return before.compose(_multiple(frozenset(), event, stride, 1))
    if start:
        return _compose(start, ROUGH).compose(_multiple(frozenset(), event, stride, 1))
    return _compose(frozenset({(event, stride)}), ROUGH)


@lru_cache(maxsize=256)
def rough_epsilon(
    start: FrozenEvents, event: Event, stride: int, multiple: int, delta: float
) -> float:
    """Bounds epsilon on a rough grid, quickly where multiples are asked for in turn.

    Args:
        start: The events before.
        event: The event that is released on top.
        stride: How many releases one multiple has.
        multiple: How many multiples there are.
        delta: The target delta.

    Returns:
        An upper bound on epsilon for the start and `stride * multiple` releases.
    """
    return _multiple(start, event, stride, multiple).epsilon(delta)


@lru_cache(maxsize=256)
def _rdp_of(
    event: Event, classic: bool, relation: dp.NeighboringRelation
) -> tuple[np.ndarray, np.ndarray]:
    orders = CLASSIC_ORDERS if classic else dp.rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS
    if isinstance(event, dp.PoissonSampledDpEvent) and 0 < event.sampling_probability < 1:
        divergences = sampled_divergences(event.sampling_probability, _multiplier(event), orders)
        return np.array(orders), divergences
    accountant = dp.rdp.RdpAccountant(orders, relation)
    accountant.compose(event)
    return accountant.orders, accountant.rdp


def _rdp_total(events: FrozenEvents, classic: bool) -> tuple[np.ndarray, np.ndarray]:
    relation = _relation(events)
    curves = [(count, *_rdp_of(event, classic, relation)) for event, count in _in_order(events)]
    return curves[0][1], sum(count * rdp for count, _, rdp in curves)  # type: ignore[return-value]


@lru_cache(maxsize=4096)
def _rdp_epsilon(events: FrozenEvents, delta: float) -> float:
    return float(dp.rdp.compute_epsilon(*_rdp_total(events, classic=False), delta)[0])


def _rdp_classic_epsilon(events: FrozenEvents, delta: float) -> float:
    orders, rdp = _rdp_total(events, classic=True)
    return float(np.min(rdp + math.log(1 / delta) / (orders - 1)))


def _second_order_epsilon(events: FrozenEvents, delta: float) -> float:
    """Uses the Renyi divergence of order 2 alone, log(1 + q^2 (exp(1/z^2) - 1)).

    It is never below what all orders say.
    """
    divergence = 0.0
    for event, count in _in_order(events):
        rate = event.sampling_probability if isinstance(event, dp.PoissonSampledDpEvent) else 1.0
        inverse = _multiplier(event) ** -2
        excess = math.expm1(inverse) if inverse < 700 else math.inf
        divergence += count * math.log1p(rate**2 * excess)
    return divergence + math.log(1 / delta)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Computes the exact delta of a Gaussian mechanism (Balle and Wang 2018, Theorem 8).

    delta = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu).

    Args:
        mu: The sensitivity over the standard deviation, 1 / z.
        epsilon: The target epsilon.

    Returns:
        Delta.
    """
    return float(
        special.ndtr(mu / 2 - epsilon / mu)
        - math.exp(epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu)))
    )


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Computes the exact epsilon of a Gaussian mechanism, from above.

    Args:
        mu: The sensitivity over the standard deviation, 1 / z.
        delta: The target delta.

    Returns:
        The least epsilon with `gaussian_delta(mu, epsilon) <= delta`, by bisection.
    """
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def _gdp_clt_epsilon(events: FrozenEvents, delta: float) -> float:
    """Uses mu^2 = sum T q^2 (exp(1/z^2) - 1) (Bu et al. 2020), and T/z^2 without sampling."""
    mu_squared = 0.0
    for event, count in _in_order(events):
        if isinstance(event, dp.PoissonSampledDpEvent):
            z = event.event.noise_multiplier
            mu_squared += (
                count * event.sampling_probability**2 * float(np.expm1(min(1 / z**2, 700.0)))
            )
        elif isinstance(event, dp.GaussianDpEvent):
            mu_squared += count / event.noise_multiplier**2
        else:
            raise DpflError(
                "gdp-clt knows Poisson sampling only; use 'rdp' for fixed-size sampling."
            )
    return gaussian_epsilon(math.sqrt(mu_squared), delta)


def _multiplier(event: Any) -> float:
    if isinstance(event, dp.SampledWithoutReplacementDpEvent):
        raise DpflError(
            "Fixed-size sampling has no tight accountant: set privacy.accountant to 'rdp'."
        )
    return float(
        event.noise_multiplier
        if isinstance(event, dp.GaussianDpEvent)
        else _multiplier(event.event)
    )


def _unsampled_epsilon(events: FrozenEvents, delta: float) -> float:
    """Ignores sampling: exact for Gaussian events, an upper bound for Poisson samples."""
    precision = sum(count / _multiplier(event) ** 2 for event, count in _in_order(events))
    return gaussian_epsilon(math.sqrt(precision), delta)


_COARSE = Accountant("pld", True, (partial(_pld_epsilon, interval=COARSE), _rdp_epsilon))
# Over very many steps with much noise the grid of the PLD tells, and RDP is lower.
ACCOUNTANTS = {
    accountant.name: accountant
    for accountant in (
        Accountant("pld", True, (_pld_epsilon, _rdp_epsilon), quick=_COARSE),
        Accountant("rdp", True, (_rdp_epsilon,)),
        Accountant("rdp-classic", True, (_rdp_classic_epsilon,)),
        Accountant("gdp-clt", False, (_gdp_clt_epsilon,)),
    )
}
"""Every accountant by its name."""


def grid_accountant(interval: float) -> Accountant:
    """Builds an accountant that uses privacy losses alone.

    Args:
        interval: The width of the grid. A wider grid is quicker.

    Returns:
        An accountant whose figures are upper bounds, whatever the width.
    """
    return Accountant("pld", True, (partial(_pld_epsilon, interval=interval),))


def accountant(name: str) -> Accountant:
    """Finds an accountant.

    Args:
        name: `pld`, `rdp`, `rdp-classic` or `gdp-clt`.

    Returns:
        The accountant.

    Raises:
        DpflError: If there is none of this name.
    """
    return choose("accountant", name, ACCOUNTANTS)


def proven_accountant(name: str) -> Accountant:
    """Finds an accountant that may guard a budget.

    Args:
        name: `pld`, `rdp` or `rdp-classic`.

    Returns:
        The accountant.

    Raises:
        DpflError: If there is none of this name, or it is an approximation.
    """
    candidate = accountant(name)
    if not candidate.proven:
        raise DpflError(
            f"{name} is an approximation and cannot guard a budget; use 'pld', 'rdp' or "
            "'rdp-classic'."
        )
    return candidate


def default_accountant(event: Event) -> str:
    """Chooses the tightest accountant that has a proof for an event.

    Args:
        event: The event.

    Returns:
        The accountant's name: `rdp` for fixed-size sampling, `pld` otherwise.
    """
    return "rdp" if isinstance(event, dp.SampledWithoutReplacementDpEvent) else "pld"
