"""A run as its owner proposes it to a node.

A proposal is fixed before the first release and never changes. It says all that the run may ask of
the node: system, model, data, rounds, and every release in order. A node plans its spending by it,
and refuses what it does not announce.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dpfl import tasks
from dpfl.codec import canonical
from dpfl.privacy.accounting.budget import MAX_ROUNDS
from dpfl.privacy.accounting.calibration import MAX_EPSILON, MAX_RELEASES
from dpfl.privacy.accounting.events import (
    ADD_REMOVE,
    REPLACE,
    Event,
    EventCounts,
    add,
    encode,
    subtract_events,
)
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.protocol.task_messages import (
    learning_from_words,
    learning_to_words,
    noise_shares_to_words,
)
from dpfl.protocol.value_forms import (
    Form,
    event,
    list_of,
    number,
    one_of,
    optional,
    refuse,
    text,
    whole,
)
from dpfl.protocol.wire_parts import NOISE_SHARE_PARTS, part_form

MOST_OPTIONS = 16
MOST_NODES = 10_000
MOST_KINDS = 32
"""Kinds of releases that one run can plan. An accountant takes about a second for each."""

PlannedEvents = tuple[tuple[Event, int], ...]


@dataclass(frozen=True)
class Proposal:
    """The plan of a run. Each field is sent under its own name.

    Attributes:
        client: The node's place among the `federation`; tasks name the node by it.
        system: The name of the system.
        variant: "sound" or "published".
        unit: What the guarantee protects: "sample", "person" or "client"; "none" without one.
        neighbours: The neighbour relation of the guarantee.
        model: The model's name in the catalogue, or the import path of an owner's model.
        options: The model's options.
        learning: What is to be predicted.
        shape: The shape of a sample.
        schema: The digest of a table's schema; empty where samples are not rows of a table.
        epsilon: The run's own budget; None for none.
        delta: The delta of that budget.
        rounds: How many rounds; None where the budget ends the run.
        accountant: The accountant of the budget.
        noise: "secure", "floating-point", "shared" (whole numbers, in secure sums) or "none".
        federation: The names of all nodes of the run.
        events: All releases that the run may ask of this node, in order, each with its count. An
            accountant composes what is fixed in advance, so the node makes no other release for
            this run. A run that a budget ends announces more of its last event than any budget
            allows.
        sums: The terms of secure sums: nodes share the noise, and the server gets sums over at
            least so many of them only. None where the server gets updates.
        keys: In secure sums, the public keys of the federation, in its order, as the run's owner
            knows them.
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
    epsilon: float | None
    delta: float
    rounds: int | None
    accountant: str
    noise: str
    federation: tuple[str, ...]
    events: PlannedEvents
    sums: NoiseShares | None = None
    keys: tuple[str, ...] = ()

    def to_words(self) -> dict[str, Any]:
        """Writes the proposal.

        Returns:
            Words from which a node makes the same proposal.

        Raises:
            ProtocolError: The proposal has a part that cannot travel.
        """
        words = {field.name: getattr(self, field.name) for field in fields(self)}
        lists = {name: list(words[name]) for name in ("shape", "federation", "keys")}
        words |= lists | {
            "options": dict(self.options),
            "learning": learning_to_words(self.learning),
        }
        words["sums"] = self.sums and noise_shares_to_words(self.sums)
        words["events"] = [[encode(kind), count] for kind, count in self.events]
        if proposal_from_words(words) != self:
            refuse()
        return words

    @property
    def digest(self) -> str:
        """The digest of the proposal."""
        return hashlib.sha256(canonical(self.to_words())).hexdigest()

    def together(self, run: str, owner: str) -> str:
        """Names the run of a secure sum: a digest of all that was proposed, and by whom.

        Nodes to which a server proposed different runs have different digests, and therefore no
        keys in common.

        Args:
            run: The run.
            owner: The public key of the run's owner.

        Returns:
            The digest, which is the same for all nodes of one run.
        """
        words = self.to_words()
        del words["client"]
        return hashlib.sha256(
            canonical({"run": run, "owner": owner, "proposal": words})
        ).hexdigest()

    @property
    def most(self) -> int:
        """How many releases the run may ask for."""
        return sum(count for _, count in self.events)

    def spending(self, releases: int) -> EventCounts:
        """Counts the first releases of the run by event.

        Args:
            releases: How many of them.

        Returns:
            The number of releases of each event.
        """
        counts: dict[Event, int] = {}
        for kind, count in self.events:
            counts = add(counts, kind, min(count, releases))
            releases -= min(count, releases)
        return {kind: count for kind, count in counts.items() if count}


def proposal_from_words(words: Any) -> Proposal:
    """Reads a proposal.

    Args:
        words: A value that came over a wire.

    Returns:
        The proposal. Nothing about it is allowed yet: that is for the node's policy to say.

    Raises:
        ProtocolError: The words are no proposal.
    """
    if type(words) is not dict or words.keys() != FORMS.keys():
        refuse()
    return Proposal(**{name: form(words[name]) for name, form in FORMS.items()})


def in_order(
    before: EventCounts, spending: Callable[[int], EventCounts], releases: int, each: int = 0
) -> PlannedEvents:
    """Lists the events of a run in the order in which it releases them.

    Args:
        before: The releases before the first round.
        spending: From a number of releases to their count by event.
        releases: How many releases the rounds make.
        each: Releases per round, where a schedule changes them; 0 where all are alike.

    Returns:
        Each event with its count. An event may occur several times.
    """
    events = list(before.items())
    if not each:
        return (*events, *spending(releases).items())
    total: EventCounts = {}
    for end in range(each, releases + each, each):
        counts = spending(min(end, releases))
        for kind, count in subtract_events(counts, total).items():
            if events and events[-1][0] == kind:
                events[-1] = (kind, events[-1][1] + count)
            else:
                events.append((kind, count))
        total = counts
    return tuple(events)


def _options(value: Any) -> tuple[tuple[str, object], ...]:
    """Reads the options of a model: words and numbers by name, and nothing nested."""
    if type(value) is not dict or len(value) > MOST_OPTIONS:
        refuse()
    for name, option in value.items():
        text(name)
        if type(option) is not bool and type(option) not in (int, float):
            text(option)
        elif type(option) is not bool:
            number(option)
    return tuple(value.items())


def _events(value: Any) -> PlannedEvents:
    if type(value) is not list or len(value) > MOST_KINDS:
        refuse()
    return tuple(_event(words) for words in value)


def _event(value: Any) -> tuple[Event, int]:
    if type(value) is not list or len(value) != 2:
        refuse()
    return event(value[0]), whole(1, MAX_RELEASES)(value[1])


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
    "shape": list_of(whole(1)),
    "schema": text,
    "epsilon": optional(_epsilon),
    "delta": _delta,
    "rounds": optional(whole(1, MAX_ROUNDS)),
    "accountant": one_of("pld", "rdp", "rdp-classic", "none"),
    "noise": one_of("secure", "floating-point", "shared", "none"),
    "federation": list_of(text),
    "events": _events,
    "sums": optional(part_form(NOISE_SHARE_PARTS)),
    "keys": list_of(text),
}
