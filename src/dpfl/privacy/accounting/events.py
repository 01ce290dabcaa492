"""Releases as dp-accounting events: their counts, and their written form on one line.

An event describes one release without its data: a Gaussian mechanism with a noise multiplier,
perhaps on a sample of the units. Ledgers store the line that `encode` writes, so the line of an
event never changes, and `decode` accepts no other line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from dpfl.errors import DpflError
from dpfl.lazy_import import dp

Event: TypeAlias = "dp.DpEvent"
EventCounts = Mapping[Any, int]
"""How many times each event was released."""

ADD_REMOVE = "add/remove one"
"""Neighbours differ by one unit more or less."""

REPLACE = "replace one"
"""Neighbours differ by one unit in another's place."""


def gaussian(noise_multiplier: float) -> Event:
    """Describes a Gaussian release on all of the data.

    Args:
        noise_multiplier: The noise's standard deviation over the L2 sensitivity.

    Returns:
        A Gaussian event. Without noise it is an event that has no guarantee.
    """
    return dp.GaussianDpEvent(noise_multiplier) if noise_multiplier > 0 else dp.NonPrivateDpEvent()


@lru_cache(maxsize=1024)
def encode(event: Event) -> str:
    """Writes an event as one line of JSON.

    Args:
        event: A Gaussian event, one of the two sampled ones around it, or one without noise.

    Returns:
        The line. Equal events have equal lines.

    Raises:
        DpflError: If the ledger has no line for this kind of event.
    """
    return json.dumps(_fields(event), sort_keys=True, separators=(",", ":"))


def _fields(event: Event) -> dict[str, Any]:
    match event:
        case dp.NonPrivateDpEvent():
            return {"mechanism": "none"}
        case dp.GaussianDpEvent():
            return {"mechanism": "gaussian", "noise_multiplier": float(event.noise_multiplier)}
        case dp.PoissonSampledDpEvent():
            return {
                "sampling": "poisson",
                "rate": float(event.sampling_probability),
                "of": _fields(event.event),
            }
        case dp.SampledWithoutReplacementDpEvent():
            return {
                "sampling": "fixed-size",
                "population": int(event.source_dataset_size),
                "size": int(event.sample_size),
                "of": _fields(event.event),
            }
    raise DpflError(
        f"The event {event!r} has no written form in the ledger; release it as a Gaussian event."
    )


@lru_cache(maxsize=1024)
def decode(line: str) -> Event:
    """Reads an event that `encode` wrote.

    Args:
        line: One line of JSON.

    Returns:
        The event.

    Raises:
        DpflError: If the line is not exactly as `encode` writes it.
    """
    try:
        event = _event(json.loads(line))
        if encode(event) != line:
            raise ValueError("it is not written as this software writes it")
        return event
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, DpflError) as error:
        raise DpflError(
            f"The ledger holds an event that cannot be read ({line!r}); restore it from a copy."
        ) from error


def _event(fields: dict[str, Any]) -> Event:
    match fields.get("sampling"):
        case "poisson" if 0 < fields["rate"] <= 1:
            return dp.PoissonSampledDpEvent(float(fields["rate"]), _noise(fields["of"]))
        case "fixed-size" if 1 <= fields["size"] <= fields["population"]:
            return dp.SampledWithoutReplacementDpEvent(
                int(fields["population"]), int(fields["size"]), _noise(fields["of"])
            )
        case None if fields["mechanism"] == "none":
            return dp.NonPrivateDpEvent()
        case None:
            return _noise(fields)
    raise ValueError(f"unknown event {fields!r}")


def _noise(fields: dict[str, Any]) -> Event:
    multiplier = float(fields["noise_multiplier"])
    if fields["mechanism"] != "gaussian" or not 0 < multiplier < math.inf:
        raise ValueError(f"unknown noise {fields!r}")
    return dp.GaussianDpEvent(multiplier)


def describe(event: Event) -> str:
    """Describes an event for people.

    Args:
        event: The event.

    Returns:
        A phrase such as "Gaussian noise, multiplier 1.1, Poisson sampling at rate 0.01".
    """
    match event:
        case dp.NonPrivateDpEvent():
            return "a release without noise"
        case dp.GaussianDpEvent():
            return f"Gaussian noise, multiplier {event.noise_multiplier:.4g}"
        case dp.PoissonSampledDpEvent():
            return (
                f"{describe(event.event)}, Poisson sampling at rate "
                f"{event.sampling_probability:.4g}"
            )
        case dp.SampledWithoutReplacementDpEvent():
            return (
                f"{describe(event.event)}, {event.sample_size} of {event.source_dataset_size} "
                "drawn each time"
            )
    return repr(event)


def neighbours_of(events: Iterable[Event]) -> str:
    """Finds the neighbouring relation for which all events are proven.

    Args:
        events: The events of one ledger.

    Returns:
        `REPLACE` for fixed-size sampling, `ADD_REMOVE` for everything else.

    Raises:
        DpflError: If the events are proven for different relations, so that their epsilons do not
            add up.
    """
    fixed_size_flags = {isinstance(event, dp.SampledWithoutReplacementDpEvent) for event in events}
    if fixed_size_flags == {True, False}:
        raise DpflError(
            "Fixed-size and other sampling cannot share one ledger, since they are proven for "
            "different neighbours; use one kind of sampling, or a new ledger."
        )
    return REPLACE if fixed_size_flags == {True} else ADD_REMOVE


def add(events: EventCounts, event: Event, count: int) -> dict[Event, int]:
    """Adds releases of one event.

    Args:
        events: The counts before.
        event: The event that is released.
        count: How many times.

    Returns:
        New counts.
    """
    return add_all(events, {event: count})


def add_all(events: EventCounts, more: EventCounts) -> dict[Event, int]:
    """Adds two multisets of events.

    Args:
        events: The first counts.
        more: The second counts.

    Returns:
        The sum of both counts for each event.
    """
    total = dict(events)
    for event, count in more.items():
        total[event] = total.get(event, 0) + count
    return total


def subtract_events(events: EventCounts, others: EventCounts) -> dict[Event, int]:
    """Subtracts one multiset of events from another.

    Args:
        events: The counts to subtract from.
        others: The counts to subtract.

    Returns:
        The positive differences.
    """
    return {
        event: count - others.get(event, 0)
        for event, count in events.items()
        if count > others.get(event, 0)
    }


def max_events(events: EventCounts, floor: EventCounts) -> dict[Event, int]:
    """Takes the larger count of each event.

    Args:
        events: The first counts.
        floor: The second counts.

    Returns:
        max(first, second) for each event of either.
    """
    return {event: max(events.get(event, 0), floor.get(event, 0)) for event in {**events, **floor}}
