"""What was released, as dp-accounting events: a multiset of them, and their one-line written
form.
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
REPLACE = "replace one"


def gaussian(noise_multiplier: float) -> Event:
    """A Gaussian release on all of the data; no noise at all is an event without any guarantee."""
    return dp.GaussianDpEvent(noise_multiplier) if noise_multiplier > 0 else dp.NonPrivateDpEvent()


@lru_cache(maxsize=1024)
def encode(event: Event) -> str:
    """The event as one line of JSON, the same line for the same event."""
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
    """The inverse of `encode`; anything else is refused."""
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
    noise_multiplier = float(fields["noise_multiplier"])
    if fields["mechanism"] != "gaussian" or not 0 < noise_multiplier < math.inf:
        raise ValueError(f"unknown noise {fields!r}")
    return dp.GaussianDpEvent(noise_multiplier)


def describe(event: Event) -> str:
    """The event in words, for people."""
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
    """Fixed-size sampling is proven for replacing one record, everything else for adding or
    removing one.
    """
    fixed = {isinstance(event, dp.SampledWithoutReplacementDpEvent) for event in events}
    if fixed == {True, False}:
        raise DpflError(
            "Fixed-size and other sampling cannot share one ledger, since they are proven for "
            "different neighbours; "
            "use one kind of sampling, or a new ledger."
        )
    return REPLACE if fixed == {True} else ADD_REMOVE


def add_all(spent: EventCounts, more: EventCounts) -> dict[Event, int]:
    total = dict(spent)
    for event, count in more.items():
        total[event] = total.get(event, 0) + count
    return total


def subtract_events(spent: EventCounts, known: EventCounts) -> dict[Event, int]:
    """What was released beyond what is known."""
    return {
        event: count - known.get(event, 0)
        for event, count in spent.items()
        if count > known.get(event, 0)
    }


def max_events(spent: EventCounts, floor: EventCounts) -> dict[Event, int]:
    """The larger count of each."""
    return {event: max(spent.get(event, 0), floor.get(event, 0)) for event in {**spent, **floor}}


def add(spent: EventCounts, event: Event, count: int) -> dict[Event, int]:
    return add_all(spent, {event: count})
