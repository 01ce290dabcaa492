"""Calibration both ways: how often an event may be released within epsilon, and how much noise a
plan needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dpfl.errors import DpflError
from dpfl.privacy.accounting.accountant import Accountant, FrozenEvents, accountant
from dpfl.privacy.accounting.events import Event, EventCounts, add

MAX_EPSILON = 1e6
MAX_RELEASES = 1_000_000
"""More releases than any run makes: an event that allows as many is not worth counting."""


def check_target(epsilon: float, delta: float) -> None:
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise DpflError(
            f"epsilon must be a positive number, not {epsilon}; typical budgets lie between 0.5 "
            "and 10."
        )
    if epsilon > MAX_EPSILON:
        raise DpflError(
            f"epsilon may be {MAX_EPSILON:g} at most, not {epsilon}: far below that it protects "
            "nobody."
        )
    if not 0 < delta < 1:
        raise DpflError(
            f"delta must lie between 0 and 1, not {delta}; choose it well below one over the "
            "records."
        )


def affordable(
    spent: EventCounts, event: Event, epsilon: float, delta: float, by: Accountant, horizon: int = 0
) -> int:
    """The largest number of further releases of `event` that keeps epsilon(spent + them) <=
    epsilon.

    A caller that knows how many it wants says so as `horizon`: where that many are affordable, they
    are the answer, and one evaluation is enough.
    """
    others = frozenset((other, count) for other, count in spent.items() if other != event)
    have = spent.get(event, 0)
    return max(
        0,
        _largest_total(others, event, epsilon, delta, by.name, have + horizon if horizon else 0)
        - have,
    )


def _largest_total(
    others: FrozenEvents, event: Any, epsilon: float, delta: float, by: str, horizon: int
) -> int:
    """The largest total count of `event` beside `others`, or `horizon` where that is affordable."""
    if horizon and _fits(others, event, horizon, epsilon, delta, by):
        return horizon
    return _most(others, event, epsilon, delta, by)


@lru_cache(maxsize=4096)
def _fits(
    others: FrozenEvents, event: Any, count: int, epsilon: float, delta: float, by: str
) -> bool:
    spent = add(dict(others), event, count)
    quick = accountant(by).quick
    return (
        bool(quick and quick.epsilon(spent, delta) <= epsilon)
        or accountant(by).epsilon(spent, delta) <= epsilon
    )


def largest_count(fits: Callable[[int], bool], horizon: int) -> int:
    """The largest count up to a horizon that fits; one question where all of it does."""
    return (
        horizon if fits(horizon) else _largest(lambda count: count < horizon and fits(count), 1, 2)
    )


@lru_cache(maxsize=1024)
def _most(others: FrozenEvents, event: Any, epsilon: float, delta: float, by: str) -> int:
    def fits(count: int, accountant: Accountant) -> bool:
        return accountant.epsilon(add(dict(others), event, count), delta) <= epsilon

    chosen = accountant(by)
    if chosen.quick is None:
        return _largest(lambda count: fits(count, chosen), 1, 2)
    near = _largest(lambda count: fits(count, chosen.quick or chosen), 1, 2)
    return _largest(lambda count: fits(count, chosen), max(near, 1), 1.01)


def _largest(fits: Callable[[int], bool], guess: int, factor: float) -> int:
    """The largest count that fits: growing steps up from a guess that does, then integer bisection
    (`fits` is monotone).
    """
    low, high = (guess, math.ceil(guess * factor)) if fits(guess) else (0, guess)
    high = max(high, low + 1)
    while low and fits(high):
        low, high = high, high + 4 * (high - low)
        if low > MAX_RELEASES:
            return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def noise_for(
    plan: Callable[[float], EventCounts], epsilon: float, delta: float, by: Accountant
) -> float:
    """The smallest noise multiplier z with epsilon(plan(z)) <= epsilon, to a relative 3e-4.

    By the accountant's quick bounds where it has them, which ask for some 1e-4 more noise. What one
    bound accepts is enough, so that another is searched only where it accepts that as well.
    """
    check_target(epsilon, delta)
    quick, least = by.quick or by, math.inf
    for bound in quick.bounds:
        single = replace(quick, bounds=(bound,))
        if math.isinf(least) or single.epsilon(plan(least), delta) <= epsilon:
            least = min(least, _least(plan, epsilon, delta, single))
    if math.isinf(least):
        raise DpflError(
            "No amount of noise meets this epsilon and delta; raise epsilon or plan fewer steps."
        )
    return least


def _least(
    plan: Callable[[float], EventCounts], epsilon: float, delta: float, by: Accountant
) -> float:
    """Bracketed by doubling, then bisection on log z with a secant guess, since log epsilon is
    almost linear in log z.
    """

    def excess(z: float) -> float:
        value = by.epsilon(plan(z), delta)
        return math.log(value / epsilon) if value > 0 else -math.inf

    return _root(excess, start=1.0, factor=2.0)


def _root(excess: Callable[[float], float], start: float, factor: float) -> float:
    low, high, above, below = _bracket(excess, start, factor)
    while math.isfinite(high) and high / low > 1 + 1e-4:
        guess = _secant(low, high, above, below)
        value = excess(guess)
        low, above, high, below = (
            (guess, value, high, below) if value > 0 else (low, above, guess, value)
        )
    return high


def noise_near(
    theory: Callable[[float], float],
    error: float,
    plan: Callable[[float], EventCounts],
    epsilon: float,
    delta: float,
    by: Accountant,
    within: float,
) -> tuple[float, float]:
    """A noise multiplier whose epsilon lies at most a share `within` below epsilon, and the
    theory's error there.

    A quick theory says which noise an epsilon needs, and is asked for one that makes up for its
    error, log(epsilon / theory's epsilon): one evaluation where that is known, few where it is not.
    Where they do not arrive, `noise_for`.
    """
    check_target(epsilon, delta)
    asked, slope = -within / 2 - error, 1.0
    before: tuple[float, float] | None = None
    for _ in range(8):
        z = theory(epsilon * math.exp(asked))
        value = math.log(max(by.epsilon(plan(z), delta), 1e-300) / epsilon)
        if -within <= value <= 0:
            return z, value - asked
        if before and asked != before[0]:
            slope = min(max((value - before[1]) / (asked - before[0]), 0.2), 5.0)
        before = asked, value
        asked -= min(max((value + within / 2) / slope, -2.0), 2.0)
    return noise_for(plan, epsilon, delta, by), 0.0


def _bracket(
    excess: Callable[[float], float], z: float, factor: float
) -> tuple[float, float, float, float]:
    """low and high with excess(low) > 0 >= excess(high); high is infinite where no noise is
    enough.
    """
    value = excess(z)
    factor = factor if value > 0 else 1 / factor
    for _ in range(40):
        other = z * factor
        other_value = excess(other)
        if (other_value > 0) != (value > 0):
            return (z, other, value, other_value) if value > 0 else (other, z, other_value, value)
        z, value = other, other_value
    return z, math.inf, value, -math.inf


def _secant(low: float, high: float, above: float, below: float) -> float:
    """Aim a little to the far side of the root, so that the bracket closes from both ends."""
    width = math.log(high / low)
    share = above / (above - below) if math.isfinite(above - below) else 0.5
    nudge = min(0.25, 2e-5 / width)
    share += nudge if share < 0.5 else -nudge
    return low * math.exp(width * min(max(share, 0.02), 0.98))
