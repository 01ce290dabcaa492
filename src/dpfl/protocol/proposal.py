"""What a run is to be, as its owner proposes it to a node: said before the first release, and not
changed after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpfl import tasks
from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.privacy.accounting.budget import MAX_ROUNDS
from dpfl.privacy.accounting.calibration import MAX_EPSILON, MAX_RELEASES
from dpfl.privacy.accounting.events import (
    ADD_REMOVE,
    REPLACE,
    Event,
    EventCounts,
    add,
    decode,
    encode,
    subtract_events,
)
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.protocol.task_messages import (
    SHARED,
    Form,
    learning_from_words,
    learning_to_words,
    listed,
    number,
    one_of,
    optional,
    part,
    refuse,
    shared_to_words,
    text,
    whole,
)
from dpfl.refusals import ProtocolError, RefusalReason

MOST_OPTIONS = 16
MOST_NODES = 10_000
MOST_KINDS = 32
"""Kinds of releases that one run can plan: an accountant takes a node about a second for each."""

Planned = tuple[tuple[Event, int], ...]


@dataclass(frozen=True)
class Proposal:
    """`client` is the node's place among the `federation`, which tasks name it by.

    `events` are all that the run may ask this node to release, in the order in which it will, each
    with the most of it: an accountant composes what was fixed beforehand, so a node makes no other
    release for this run. A run that a budget ends says more of its last event than any budget
    allows.

    With `sums` the nodes share the noise, and the server gets sums over at least so many of them
    only; `keys` are those of the federation then, in its order, as this run's owner knows them.
    """

    client: int
    system: str
    variant: str
    unit: str
    neighbours: str
    model: str
    options: tuple[tuple[str, object], ...]
    learning: tasks.Task
    shape: tuple[int, ...]
    schema: str
    """The digest of a table's schema; empty where samples are no rows of a table."""
    epsilon: float | None
    delta: float
    rounds: int | None
    accountant: str
    noise: str
    """"secure", "floating-point", "shared" (whole numbers) or "none"."""
    federation: tuple[str, ...]
    events: Planned
    sums: NoiseShares | None = None
    keys: tuple[str, ...] = ()

    def to_words(self) -> dict[str, Any]:
        words = {field.name: getattr(self, field.name) for field in fields(self)}
        lists = {name: list(words[name]) for name in ("shape", "federation", "keys")}
        words |= lists | {
            "options": dict(self.options),
            "learning": learning_to_words(self.learning),
        }
        words["sums"] = self.sums and shared_to_words(self.sums)
        words["events"] = [[encode(event), count] for event, count in self.events]
        if proposal_from_words(words) != self:
            refuse()
        return words

    @property
    def digest(self) -> str:
        """Of the run as proposed; a run is proposed once."""
        return hashlib.sha256(canonical(self.to_words())).hexdigest()

    def together(self, run: str, owner: str) -> str:
        """What nodes of one run know it by when they sum: a digest of all that was proposed to each
        of them, and by whom.
        """
        words = self.to_words()
        del words["client"]
        return hashlib.sha256(
            canonical({"run": run, "owner": owner, "proposal": words})
        ).hexdigest()

    @property
    def most(self) -> int:
        """Releases that it may ask for in all."""
        return sum(count for _, count in self.events)

    def spending(self, releases: int) -> EventCounts:
        """The first so many of them."""
        spent: dict[Event, int] = {}
        for event, count in self.events:
            spent = add(spent, event, min(count, releases))
            releases -= min(count, releases)
        return {event: count for event, count in spent.items() if count}


def proposal_from_words(words: Any) -> Proposal:
    if type(words) is not dict or words.keys() != FORMS.keys():
        refuse()
    return Proposal(**{name: form(words[name]) for name, form in FORMS.items()})


def in_order(
    before: EventCounts, spending: Callable[[int], EventCounts], releases: int, each: int = 0
) -> Planned:
    """The events of a run: those before its first round, then its releases, all alike; or `each`
    round's in turn, where a schedule changes them."""
    found = list(before.items())
    if not each:
        return (*found, *spending(releases).items())
    made: EventCounts = {}
    for end in range(each, releases + each, each):
        now = spending(min(end, releases))
        for event, count in subtract_events(now, made).items():
            if found and found[-1][0] == event:
                found[-1] = (event, found[-1][1] + count)
            else:
                found.append((event, count))
        made = now
    return tuple(found)


def _options(value: Any) -> tuple[tuple[str, object], ...]:
    """Words and numbers by name, none of them a path or a list."""
    if type(value) is not dict or len(value) > MOST_OPTIONS:
        refuse()
    for name, option in value.items():
        text(name)
        if type(option) is not bool and type(option) not in (int, float):
            text(option)
        elif type(option) is not bool:
            number(option)
    return tuple(value.items())


def _events(value: Any) -> Planned:
    if type(value) is not list or len(value) > MOST_KINDS:
        refuse()
    return tuple(_event(one) for one in value)


def _event(value: Any) -> tuple[Event, int]:
    if (
        type(value) is not list
        or len(value) != 2
        or type(value[0]) is not str
        or len(value[0]) > 1000
    ):
        refuse()
    try:
        return decode(value[0]), whole(1, MAX_RELEASES)(value[1])
    except (DpflError, RecursionError):
        raise ProtocolError(RefusalReason.BAD_WORDS) from None


def _delta(value: Any) -> float:
    return value if 0 < number(value) < 1 else refuse()


def _epsilon(value: Any) -> float:
    return value if 0 < number(value) <= MAX_EPSILON else refuse()


FORMS: Mapping[str, Form] = {
    "client": whole(0, MOST_NODES),
    "system": text,
    "variant": text,
    "unit": text,
    "neighbours": one_of(ADD_REMOVE, REPLACE, "none"),
    "model": text,
    "options": _options,
    "learning": learning_from_words,
    "shape": listed(whole(1)),
    "schema": text,
    "epsilon": optional(_epsilon),
    "delta": _delta,
    "rounds": optional(whole(1, MAX_ROUNDS)),
    "accountant": one_of("pld", "rdp", "rdp-classic", "none"),
    "noise": one_of("secure", "floating-point", "shared", "none"),
    "federation": listed(text),
    "events": _events,
    "sums": optional(part(SHARED)),
    "keys": listed(text),
}
