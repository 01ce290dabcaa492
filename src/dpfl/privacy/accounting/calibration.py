"""Calibration both ways: how many releases a budget affords, and how much noise a plan needs.

Both search for the border of a monotone condition, epsilon(events) <= budget, and each evaluation
of an accountant may take tens of milliseconds. So the cheaper bound of an accountant
(`Accountant.quick`) settles what it can, results are cached, and a caller that knows how many
releases it needs says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dpfl.deprecation import renamed_keywords
from dpfl.errors import DpflError
from dpfl.privacy.accounting.accountant import Accountant, FrozenEvents, accountant
from dpfl.privacy.accounting.events import Event, EventCounts, add

MAX_EPSILON = 1e6
"""No budget may be larger: far below it nothing is protected."""

MAX_RELEASES = 1_000_000
"""More releases than any run makes: an event that allows as many is not worth counting."""


def check_target(epsilon: float, delta: float) -> None:
    """Checks that a privacy target is usable.

    Args:
        epsilon: The target epsilon.
        delta: The target delta.

    Raises:
        DpflError: If epsilon is not in (0, 1e6], or delta not in (0, 1).
    """
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


@renamed_keywords(spent="events")
def affordable(
    events: EventCounts,
    event: Event,
    epsilon: float,
    delta: float,
    by: Accountant,
    horizon: int = 0,
) -> int:
    """Counts how many more releases of one event keep epsilon(events + releases) <= epsilon.

    Args:
        events: What was released before.
        event: The event to release.
        epsilon: The target epsilon.
        delta: The target delta.
        by: The accountant.
        horizon: How many releases the caller needs at most. If so many are affordable, one
            evaluation finds it.

    Returns:
        The largest number of further releases, or `horizon` if that many are affordable.
    """
    others = frozenset((other, count) for other, count in events.items() if other != event)
    before = events.get(event, 0)
    total = _largest_total(
        others, event, epsilon, delta, by.name, before + horizon if horizon else 0
    )
    return max(0, total - before)


def _largest_total(
    others: FrozenEvents, event: Any, epsilon: float, delta: float, by: str, horizon: int
) -> int:
    """Finds the largest total count of `event`, or `horizon` if that many are affordable."""
    if horizon and _fits(others, event, horizon, epsilon, delta, by):
        return horizon
    return _most(others, event, epsilon, delta, by)


@lru_cache(maxsize=4096)
def _fits(
    others: FrozenEvents, event: Any, count: int, epsilon: float, delta: float, by: str
) -> bool:
    total = add(dict(others), event, count)
    full = accountant(by)
    is_settled = bool(full.quick and full.quick.epsilon(total, delta) <= epsilon)
    return is_settled or full.epsilon(total, delta) <= epsilon


def largest_count(fits: Callable[[int], bool], horizon: int) -> int:
    """Finds the largest count that fits.

    Args:
        fits: Whether a count fits. It is monotone: once false, it stays false.
        horizon: The largest count to consider. It is asked for first.

    Returns:
        The largest count up to `horizon`; 0 if none fits.
    """
    return (
        horizon if fits(horizon) else _largest(lambda count: count < horizon and fits(count), 1, 2)
    )


@lru_cache(maxsize=1024)
def _most(others: FrozenEvents, event: Any, epsilon: float, delta: float, by: str) -> int:
    def fits(count: int, accountant: Accountant) -> bool:
        return accountant.epsilon(add(dict(others), event, count), delta) <= epsilon

    full = accountant(by)
    if full.quick is None:
        return _largest(lambda count: fits(count, full), 1, 2)
    near = _largest(lambda count: fits(count, full.quick or full), 1, 2)
    return _largest(lambda count: fits(count, full), max(near, 1), 1.01)


def _largest(fits: Callable[[int], bool], guess: int, factor: float) -> int:
    """Finds the largest count that fits: growing steps up from a guess, then integer bisection."""
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
    """Finds the smallest noise multiplier z with epsilon(plan(z)) <= epsilon, to a relative 3e-4.

    The search uses the accountant's quick bounds if it has them, which ask for some 1e-4 more
    noise. One bound that accepts is enough, so another bound is searched only where it accepts the
    least noise so far.

    Args:
        plan: Maps a noise multiplier to the events of the whole run.
        epsilon: The target epsilon.
        delta: The target delta.
        by: The accountant.

    Returns:
        The noise multiplier.

    Raises:
        DpflError: If no amount of noise meets the target.
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
    """Searches log z by a bracket and a secant, since log epsilon is almost linear in log z."""

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
    """Finds a noise multiplier whose epsilon lies below the target by a share of at most `within`.

    A quick theory maps an epsilon to the noise that it needs. It is asked for an epsilon that makes
    up for its error, log(epsilon / theory's epsilon). That takes one evaluation where the error is
    known, and few where it is not. If they do not arrive, `noise_for` does.

    Args:
        theory: Maps an epsilon to an approximate noise multiplier.
        error: The theory's error at a similar target; 0 if unknown.
        plan: Maps a noise multiplier to the events of the whole run.
        epsilon: The target epsilon.
        delta: The target delta.
        by: The accountant.
        within: The accepted share.

    Returns:
        The noise multiplier, and the theory's error there.
    """
    check_target(epsilon, delta)
    log_ratio, slope = -within / 2 - error, 1.0
    before: tuple[float, float] | None = None
    for _ in range(8):
        z = theory(epsilon * math.exp(log_ratio))
        value = math.log(max(by.epsilon(plan(z), delta), 1e-300) / epsilon)
        if -within <= value <= 0:
            return z, value - log_ratio
        if before and log_ratio != before[0]:
            slope = min(max((value - before[1]) / (log_ratio - before[0]), 0.2), 5.0)
        before = log_ratio, value
        log_ratio -= min(max((value + within / 2) / slope, -2.0), 2.0)
    return noise_for(plan, epsilon, delta, by), 0.0


def _bracket(
    excess: Callable[[float], float], z: float, factor: float
) -> tuple[float, float, float, float]:
    """Finds low and high with excess(low) > 0 >= excess(high); high may be infinite."""
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
    """Aims a little to the far side of the root, so that the bracket closes from both ends."""
    width = math.log(high / low)
    share = above / (above - below) if math.isfinite(above - below) else 0.5
    nudge = min(0.25, 2e-5 / width)
    share += nudge if share < 0.5 else -nudge
    return low * math.exp(width * min(max(share, 0.02), 0.98))
