"""Epsilon for a multiset of events, by the accountants of the field.

`pld` (privacy loss distributions) is tight and pessimistic, `rdp` uses the improved conversion,
`rdp-classic` the one of the first papers (orders 2..63, 128, 256, 512). These three are proven
upper bounds. `gdp-clt` is a limit theorem: it can lie below the truth, so it never guards a budget
nor stands in a statement as proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dpfl.bad_values import choose
from dpfl.errors import DpflError
from dpfl.lazy_import import dp, special
from dpfl.privacy.accounting.events import REPLACE, Event, EventCounts, encode, neighbours_of
from dpfl.privacy.accounting.loss_grid import LossGridPair
from dpfl.privacy.accounting.losses import gaussian_losses
from dpfl.privacy.accounting.renyi import sampled_divergences

CLASSIC_ORDERS = [*range(2, 64), 128, 256, 512]
DISCRETISATION = 1e-4
COARSE = 1e-3
"""Ten times as quick, some 1e-4 above the finer figure, and an upper bound all the same."""
ROUGH = 4e-3
"""For figures that are shown in passing: some 2e-3 above."""

HUGE_EPSILON = 200.0
"""An epsilon that protects nobody, and whose losses need a grid that does not fit into memory:
quick bounds will do.
"""

FrozenEvents = frozenset[tuple[Any, int]]


@dataclass(frozen=True)
class Accountant:
    """A way to turn what was released into epsilon at delta."""

    name: str
    proven: bool
    bounds: tuple[Callable[[FrozenEvents, float], float], ...]
    """Each holds by itself, so that the least of them counts."""
    quick: Accountant | None = None
    """A cheaper upper bound on the same figure, for decisions that it can settle."""

    def epsilon(self, spent: EventCounts, delta: float) -> float:
        """Epsilon at `delta`; infinite where an event has no noise."""
        events = frozenset((event, count) for event, count in spent.items() if count > 0)
        if not events:
            return 0.0
        if any(isinstance(event, dp.NonPrivateDpEvent) for event, _ in events):
            return math.inf
        found = [_bounded(bound, events, delta) for bound in self.bounds]
        return min(math.inf if math.isnan(epsilon) else epsilon for epsilon in found)


def _bounded(
    bound: Callable[[FrozenEvents, float], float], events: FrozenEvents, delta: float
) -> float:
    """Infinite, which is never too small, where the figure is beyond floating-point numbers."""
    try:
        return bound(events, delta)
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _in_order(events: Iterable[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Events by their written form: the order of a set changes from process to process, and with it
    the last bits of a sum.

    Noise is planned from these sums, so without an order one seed would give several models.
    """
    return sorted(events, key=lambda pair: (_written(pair[0]), pair[1]))


def _written(event: Any) -> str:
    try:
        return encode(event)
    except DpflError:
        return str(event)


def _relation(events: FrozenEvents) -> dp.NeighboringRelation:
    replace = neighbours_of(event for event, _ in events) == REPLACE
    return (
        dp.NeighboringRelation.REPLACE_ONE if replace else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    )


@lru_cache(maxsize=64)
def _pld_of(event: Event, interval: float) -> LossGridPair:
    rate, noise = 1.0, event
    if isinstance(event, dp.PoissonSampledDpEvent):
        rate, noise = event.sampling_probability, event.event
    return gaussian_losses(noise.noise_multiplier, rate, interval)


@lru_cache(maxsize=4096)
def _pld_epsilon(events: FrozenEvents, delta: float, interval: float = DISCRETISATION) -> float:
    """By privacy losses; exact where nothing is sampled, and by quick bounds where the losses are
    too large for a grid.
    """
    everyone = _everyone_epsilon(events, delta)
    if all(isinstance(event, dp.GaussianDpEvent) for event, _ in events):
        return everyone
    huge = everyone > HUGE_EPSILON and _second_order_epsilon(events, delta) > HUGE_EPSILON
    if huge and (quick := min(everyone, _rdp_epsilon(events, delta))) > HUGE_EPSILON:
        return quick
    return _composed(events, interval).epsilon(delta)


def _composed(events: FrozenEvents, interval: float) -> LossGridPair:
    ordered = _in_order(events)
    plain = sum(
        count / event.noise_multiplier**2
        for event, count in ordered
        if isinstance(event, dp.GaussianDpEvent)
    )
    parts = [
        _pld_of(event, interval).repeated(count)
        for event, count in ordered
        if not isinstance(event, dp.GaussianDpEvent)
    ]
    if plain:  # Gaussians on the same data compose to one Gaussian
        parts.append(_pld_of(dp.GaussianDpEvent(1 / math.sqrt(plain)), interval))
    total = parts[0]
    for part in parts[1:]:
        total = total.beside(part)
    return total


@lru_cache(maxsize=256)
def _multiple(start: FrozenEvents, event: Event, stride: int, multiple: int) -> LossGridPair:
    """The start and a multiple of `stride` releases of the event: what was composed for the
    multiple before, once more.
    """
    if multiple > 1:
        return _multiple(start, event, stride, multiple - 1).beside(
            _multiple(frozenset(), event, stride, 1)
        )
    if start:
        return _composed(start, ROUGH).beside(_multiple(frozenset(), event, stride, 1))
    return _composed(frozenset({(event, stride)}), ROUGH)


@lru_cache(maxsize=256)
def rough_epsilon(
    start: FrozenEvents, event: Event, stride: int, multiple: int, delta: float
) -> float:
    """An upper bound for the start and a multiple of `stride` releases, quick where the multiples
    are asked for in turn.
    """
    return _multiple(start, event, stride, multiple).epsilon(delta)


@lru_cache(maxsize=256)
def _rdp_of(
    event: Event, classic: bool, relation: dp.NeighboringRelation
) -> tuple[np.ndarray, np.ndarray]:
    orders = CLASSIC_ORDERS if classic else dp.rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS
    if isinstance(event, dp.PoissonSampledDpEvent) and 0 < event.sampling_probability < 1:
        return np.array(orders), sampled_divergences(
            event.sampling_probability, _multiplier(event), orders
        )
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
    """By the Renyi divergence of order 2 alone, log(1 + q^2 (exp(1/z^2) - 1)): never below what all
    orders say.
    """
    divergence = 0.0
    for event, count in _in_order(events):
        rate = event.sampling_probability if isinstance(event, dp.PoissonSampledDpEvent) else 1.0
        inverse = _multiplier(event) ** -2
        divergence += count * math.log1p(
            rate**2 * (math.expm1(inverse) if inverse < 700 else math.inf)
        )
    return divergence + math.log(1 / delta)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The exact delta of a Gaussian mechanism with multiplier 1/mu (Balle and Wang 2018)."""
    return float(
        special.ndtr(mu / 2 - epsilon / mu)
        - math.exp(epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu)))
    )


def _gdp_clt_epsilon(events: FrozenEvents, delta: float) -> float:
    """mu^2 = sum T q^2 (exp(1/z^2) - 1) (Bu et al. 2020); T/z^2 where nothing is sampled."""
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


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon of a Gaussian mechanism with multiplier 1/mu, from above."""
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    return high


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


def _everyone_epsilon(events: FrozenEvents, delta: float) -> float:
    """As if everyone took part every time: exact for Gaussian events, an upper bound where units
    are sampled by coins.
    """
    return gaussian_epsilon(
        math.sqrt(sum(count / _multiplier(event) ** 2 for event, count in _in_order(events))), delta
    )


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


def grid_accountant(interval: float) -> Accountant:
    """Privacy losses alone, on a grid of this width: an upper bound whatever the width, and quicker
    the wider it is.
    """
    return Accountant("pld", True, (partial(_pld_epsilon, interval=interval),))


def accountant(name: str) -> Accountant:
    return choose("accountant", name, ACCOUNTANTS)


def proven_accountant(name: str) -> Accountant:
    """An accountant that may guard a budget."""
    found = accountant(name)
    if not found.proven:
        raise DpflError(
            f"{name} is an approximation and cannot guard a budget; use 'pld', 'rdp' or "
            "'rdp-classic'."
        )
    return found


def default_accountant(event: Event) -> str:
    """The tightest accountant that has a proof for this event."""
    return "rdp" if isinstance(event, dp.SampledWithoutReplacementDpEvent) else "pld"
