"""The server's part in secure sums over nodes: sessions of keys, and one sum at a time.

`dpfl.secagg.MaskedSum` is the protocol of one sum without I/O. This module asks the nodes and gives
it their answers (docs/secagg.md):

- `ready` sets up keys among the nodes that are there, before anybody pays for anything.
- `begin` names the sum, and `take` accepts the masked numbers of each node (exchange 1).
- `add` shows the survivors, collects votes if somebody is missing, and unmasks the sum (exchanges
  2 and 3).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from dpfl.engines.node_channel import InvalidReply, NodeChannel, refusal_of
from dpfl.errors import DpflError
from dpfl.protocol import secure_sum_messages
from dpfl.protocol.messages import SignedMessage
from dpfl.protocol.secure_sum_messages import Arrays, Words
from dpfl.refusals import ProtocolError, RefusalReason
from dpfl.secagg import (
    KeyAdvertisement,
    MaskedInput,
    MaskedSum,
    MemberRefusal,
    SumGroup,
    SumId,
    SurvivorVote,
    check,
    present,
    session,
)

MOST_BARREN = 3
"""Sums in a row that may fail to open, before nobody is asked to pay for another."""
GREETING = 3.0
"""Seconds to wait for a node that was away."""


@dataclass
class SecureSumServer:
    """Runs the secure sums of one run.

    A session has the keys of the nodes that are there. It is set up anew when they change: when a
    node has lost its keys, does not answer, or is back. A node that is away is asked again after 1,
    2, 4, ... rounds.

    Attributes:
        channel: Messages to the nodes of the run.
        group: All members of the run's sums.
        deadline: Seconds that an exchange may take.
        joining: Seconds that a set-up may take.
        session: The digest that names the session.
        here: The nodes that have the session's keys.
    """

    channel: NodeChannel
    group: SumGroup
    deadline: float
    joining: float
    session: str = ""
    here: frozenset[str] = frozenset()
    _members: SumGroup | None = None
    """The members of the session."""
    _away: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name: the round in which a node is asked again, and how many rounds it waits."""
    _sum_id: SumId | None = None
    _task_name: str = ""
    _inputs: dict[str, MaskedInput] = field(default_factory=dict)
    _refusals: dict[str, str] = field(default_factory=dict)
    """By name: why a node refused what it was asked last."""
    _number: int = 0
    """The number of the last set-up. Later set-ups have larger numbers, also those of a server that
    was started again: they follow the clock.
    """
    _barren: int = 0
    """Sums since the last one that could be opened."""

    def ready(self, round: int, names: Collection[str]) -> None:
        """Sets up a session with the nodes that are there, if there is none.

        Args:
            round: The round.
            names: The nodes that are to sum in it.

        Raises:
            DpflError: Too few of them are there. Nobody has paid for anything.
        """
        to_greet = [
            name for name, (when, _) in self._away.items() if when <= round and name in names
        ]
        for name in self._find_awake(to_greet):
            del self._away[name]
        for name in to_greet:
            if name in self._away:
                gap = 2 * self._away[name][1]
                self._away[name] = round + gap, gap
        present_names = frozenset(names) - self._away.keys()
        if not self.session or self.here != present_names:
            self._set_up(round, present_names)

    def _find_awake(self, names: Collection[str]) -> list[str]:
        """Finds those of some nodes that answer a greeting."""
        if not names:
            return []
        requests = {name: self.channel.message(name, "ping", "greeting", {}) for name in names}
        answers = self.channel.ask(requests, GREETING)
        return [name for name, answer in answers.items() if isinstance(answer, SignedMessage)]

    def _set_up(self, round: int, names: Collection[str]) -> None:
        """Collects new keys of all who are there, and shows all keys to all of them."""
        self._number = max(self._number + 1, time.time_ns() // 1000)
        self.session, task_name = "", f"set-up/{self._number}"
        number: Words = {"number": self._number}
        answers = self._ask("card", task_name, {name: (number, {}) for name in names}, self.joining)
        advertisements = [
            advertisement
            for name, answer in answers.items()
            if (advertisement := self._advertisement(name, answer))
        ]
        try:
            members = present(self.group, advertisements)
            session_digest = session(members, advertisements)
        except MemberRefusal:
            raise self._too_few(len(advertisements)) from None
        key_words = [secure_sum_messages.advertisement_to_words(each) for each in advertisements]
        words = {"cards": key_words}
        answers = self._ask(
            "meet",
            task_name,
            {advertisement.name: (words, {}) for advertisement in advertisements},
            self.joining,
        )
        self.here = frozenset(
            name
            for name, answer in answers.items()
            if answer.header.get("session") == session_digest
        )
        for name in frozenset(names) - self.here:
            self._lose(name, round)
        if len(self.here) < self.group.survivors:
            raise self._too_few(len(self.here))
        self.session, self._members = session_digest, members

    def _advertisement(self, name: str, answer: SignedMessage) -> KeyAdvertisement | None:
        """Reads a node's own keys, signed for this run."""
        try:
            advertisement = secure_sum_messages.advertisement_from_words(answer.header.get("card"))
            check(self.group, advertisement)
        except (ProtocolError, MemberRefusal):
            return None
        return advertisement if advertisement.name == name else None

    def _too_few(self, count: int) -> DpflError:
        why = "".join(f" {name}: {sentence}" for name, sentence in self._refusals.items())
        return DpflError(
            f"Only {count} of {len(self.group.names)} nodes are available, and a sum needs "
            f"{self.group.survivors}. No node was asked for anything. Continue with --resume when "
            f"more nodes are back.{why}"
        )

    def _lose(self, name: str, round: int) -> None:
        self._away.setdefault(name, (round + 1, 1))

    def begin(self, sum_id: SumId, task_name: str) -> None:
        """Begins a sum.

        Args:
            sum_id: The sum.
            task_name: The name of its tasks.

        Raises:
            DpflError: Several sums in a row could not be opened, though enough nodes were there.
                Nobody pays for another.
        """
        if self._barren >= MOST_BARREN:
            raise DpflError(
                f"{MOST_BARREN} sums in a row could not be opened, although enough nodes were "
                "available. Look at the lost replies, remove the node that spoils the sums, or "
                "continue with --resume."
            )
        self._sum_id, self._task_name, self._inputs = sum_id, task_name, {}
        self._barren += 1

    def take(self, name: str, answer: SignedMessage) -> np.ndarray:
        """Accepts the masked numbers of a node (exchange 1).

        Args:
            name: The node.
            answer: Its answer.

        Returns:
            The masked numbers.

        Raises:
            ProtocolError: The answer has none.
        """
        assert self._sum_id is not None
        assert self._members is not None
        self._inputs[name] = secure_sum_messages.input_from_arrays(
            answer.arrays, self._sum_id, name, self._members.names
        )
        return self._inputs[name].numbers

    def close(
        self,
        round: int,
        answers: Mapping[str, SignedMessage | InvalidReply],
        names: Collection[str],
    ) -> None:
        """Records who did not take part in a round.

        Args:
            round: The round.
            answers: The answers that came. A node that has no keys gets new ones at the next
                set-up.
            names: The nodes that were asked. Those that did not answer are away.
        """
        for name in names:
            answer = answers.get(name)
            if answer is None:
                self._lose(name, round)
            elif (
                isinstance(answer, SignedMessage)
                and answer.header.get("reason") == RefusalReason.NO_KEYS
            ):
                self.here -= {name}

    def add(self, numbers: Mapping[str, np.ndarray]) -> np.ndarray:
        """Unmasks the sum of some nodes' numbers (exchange 2, and 3 if somebody is missing).

        Args:
            numbers: The masked numbers that are in the sum, by node.

        Returns:
            The sum.

        Raises:
            RepeatSum: It cannot be opened.
        """
        assert self._sum_id is not None
        assert self._members is not None
        first = next(iter(numbers.values()))
        masked_sum = MaskedSum(self._members, self._sum_id, len(first), 8 * first.dtype.itemsize)
        for name in numbers:
            masked_sum.take(self._inputs[name])
        count = len(self._members.names)
        lists = {
            name: secure_sum_messages.survivors_to_fields(survivor_list, count)
            for name, survivor_list in masked_sum.survivor_lists().items()
        }
        enough = self._members.threshold
        answers = self._ask("survivors", self._task_name, lists, self.deadline, enough)
        if masked_sum.missing:
            self._collect_votes(masked_sum, answers)
            votes = secure_sum_messages.votes_to_words(masked_sum.votes())
            requests = dict.fromkeys(answers, (votes, dict[str, np.ndarray]()))
            answers = self._ask("votes", self._task_name, requests, self.deadline, enough)
        return self._total(masked_sum, answers)

    def _collect_votes(self, masked_sum: MaskedSum, answers: Mapping[str, SignedMessage]) -> None:
        assert self._sum_id is not None
        for name, answer in answers.items():
            with suppress(ProtocolError, MemberRefusal):
                signature = secure_sum_messages.signature(answer.header.get("signature"))
                masked_sum.vote(SurvivorVote(self._sum_id, name, signature))

    def _total(self, masked_sum: MaskedSum, answers: Mapping[str, SignedMessage]) -> np.ndarray:
        assert self._sum_id is not None
        for name, answer in answers.items():
            with suppress(ProtocolError, MemberRefusal):
                shares = secure_sum_messages.shares_from_fields(
                    answer.header, answer.arrays, self._sum_id, name
                )
                masked_sum.open(shares)
        total = masked_sum.total()
        self._barren = 0
        return total

    def _ask(
        self,
        kind: str,
        task_name: str,
        content: Mapping[str, tuple[Words, Arrays]],
        seconds: float,
        enough: int | None = None,
    ) -> dict[str, SignedMessage]:
        """Asks nodes, and returns the answers that are no refusals."""
        requests = {
            name: self.channel.message(name, kind, task_name, words, arrays)
            for name, (words, arrays) in content.items()
        }
        replies = self.channel.ask(requests, seconds, enough)
        answers = {
            name: answer for name, answer in replies.items() if isinstance(answer, SignedMessage)
        }
        self._refusals = {
            name: refusal_of(answer.header)
            for name, answer in answers.items()
            if answer.header.get("kind") == "refused"
        }
        return {name: answer for name, answer in answers.items() if name not in self._refusals}
