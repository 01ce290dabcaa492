"""The server's part of secure sums over nodes: a session with whoever is there, and one sum at a
time (docs/secagg.md).
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
GREETING = 3.0
"""Seconds that somebody who was away is waited for."""


@dataclass
class SecureSumServer:
    """`group` is all of the run's members; a session is of those who are there, and is set up anew
    when that changes: when one has no keys any more, or does not answer, or is back. Whoever is
    away is asked after 1, 2, 4, ... rounds."""

    correspondence: NodeChannel
    group: SumGroup
    deadline: float
    joining: float
    session: str = ""
    here: frozenset[str] = frozenset()
    """Those who have the session's keys."""
    _members: SumGroup | None = None
    _away: dict[str, tuple[int, int]] = field(default_factory=dict)
    _at: SumId | None = None
    _order: str = ""
    _masked: dict[str, MaskedInput] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)
    """Who refused what was asked last, and why."""
    _number: int = 0
    """Of the last set-up. Later ones have larger ones, of a server that was started again too: they
    go by the clock.
    """
    _barren: int = 0
    """Sums since the last that was opened."""

    def ready(self, round: int, wanted: Collection[str]) -> None:
        """A session with those of the wanted who are there; refused, before anybody pays, where
        they are too few.
        """
        due = [name for name, (when, _) in self._away.items() if when <= round and name in wanted]
        for name in self._greeted(due):
            del self._away[name]
        for name in due:
            if name in self._away:
                gap = 2 * self._away[name][1]
                self._away[name] = round + gap, gap
        expected = frozenset(wanted) - self._away.keys()
        if not self.session or self.here != expected:
            self._set_up(round, expected)

    def _greeted(self, names: Collection[str]) -> list[str]:
        if not names:
            return []
        letter = self.correspondence.letter
        answers = self.correspondence.ask(
            {name: letter(name, "ping", "greeting", {}) for name in names}, GREETING
        )
        return [name for name, answer in answers.items() if isinstance(answer, SignedMessage)]

    def _set_up(self, round: int, names: Collection[str]) -> None:
        """New keys of all who are there, shown to all of them."""
        self._number = max(self._number + 1, time.time_ns() // 1000)
        self.session, order, told = "", f"set-up/{self._number}", {"number": self._number}
        answers = self._asked("card", order, {name: (told, {}) for name in names}, self.joining)
        cards = [card for name, answer in answers.items() if (card := self._card(name, answer))]
        try:
            members = present(self.group, cards)
            found = session(members, cards)
        except MemberRefusal:
            raise self._too_few(len(cards)) from None
        words = {"cards": [secure_sum_messages.card_to_words(card) for card in cards]}
        answers = self._asked(
            "meet", order, {card.name: (words, {}) for card in cards}, self.joining
        )
        self.here = frozenset(
            name for name, answer in answers.items() if answer.head.get("session") == found
        )
        for name in frozenset(names) - self.here:
            self._lose(name, round)
        if len(self.here) < self.group.survivors:
            raise self._too_few(len(self.here))
        self.session, self._members = found, members

    def _card(self, name: str, answer: SignedMessage) -> KeyAdvertisement | None:
        """Its own, signed for this run."""
        try:
            card = secure_sum_messages.card_from_words(answer.head.get("card"))
            check(self.group, card)
        except (ProtocolError, MemberRefusal):
            return None
        return card if card.name == name else None

    def _too_few(self, found: int) -> DpflError:
        why = "".join(f" {name}: {sentence}" for name, sentence in self._refused.items())
        return DpflError(
            f"{found} of {len(self.group.names)} nodes are there for a sum that "
            f"{self.group.survivors} must be in: nothing was "
            f"asked of them; go on when more are back, with --resume.{why}"
        )

    def _lose(self, name: str, round: int) -> None:
        self._away.setdefault(name, (round + 1, 1))

    def begin(self, at: SumId, order: str) -> None:
        """Nobody pays for more sums than a few that come to nothing, one after another."""
        if self._barren >= MOST_BARREN:
            raise DpflError(
                f"{MOST_BARREN} sums one after another could not be opened, though enough nodes "
                "were there: see what was lost, "
                "take off the list who spoils them, or go on with --resume."
            )
        self._at, self._order, self._masked, self._barren = at, order, {}, self._barren + 1

    def take(self, name: str, answer: SignedMessage) -> np.ndarray:
        """The masked numbers of a node; `Bad` where they are none."""
        assert self._at is not None
        assert self._members is not None
        self._masked[name] = secure_sum_messages.masked_from(
            answer.arrays, self._at, name, self._members.names
        )
        return self._masked[name].numbers

    def close(
        self,
        round: int,
        answers: Mapping[str, SignedMessage | InvalidReply],
        asked: Collection[str],
    ) -> None:
        """Who did not answer is away; who has no keys, or refused, gets new ones at the next
        set-up.
        """
        for name in asked:
            answer = answers.get(name)
            if answer is None:
                self._lose(name, round)
            elif (
                isinstance(answer, SignedMessage)
                and answer.head.get("reason") == RefusalReason.NO_KEYS
            ):
                self.here -= {name}

    def add(self, numbers: Mapping[str, np.ndarray]) -> np.ndarray:
        """The sum over all whose numbers these are: exchange 2 and, if somebody is missing, 3;
        `Repeat` where that fails.
        """
        assert self._at is not None
        assert self._members is not None
        first = next(iter(numbers.values()))
        sum, least = (
            MaskedSum(self._members, self._at, len(first), 8 * first.dtype.itemsize),
            self._members.threshold,
        )
        for name in numbers:
            sum.take(self._masked[name])
        shown = {
            name: secure_sum_messages.shown_to(one, len(self._members.names))
            for name, one in sum.shown().items()
        }
        answers = self._asked("survivors", self._order, shown, self.deadline, least)
        if not sum.missing:
            return self._total(sum, answers)
        for name, answer in answers.items():
            with suppress(ProtocolError, MemberRefusal):
                sum.vote(
                    SurvivorVote(
                        self._at, name, secure_sum_messages.signature(answer.head.get("signature"))
                    )
                )
        votes = secure_sum_messages.votes_to_words(sum.votes())
        return self._total(
            sum,
            self._asked(
                "votes", self._order, dict.fromkeys(answers, (votes, {})), self.deadline, least
            ),
        )

    def _total(self, sum: MaskedSum, answers: Mapping[str, SignedMessage]) -> np.ndarray:
        assert self._at is not None
        for name, answer in answers.items():
            with suppress(ProtocolError, MemberRefusal):
                sum.open(
                    secure_sum_messages.opened_from(answer.head, answer.arrays, self._at, name)
                )
        total, self._barren = sum.total(), 0
        return total

    def _asked(
        self,
        kind: str,
        order: str,
        told: Mapping[str, tuple[Words, Arrays]],
        seconds: float,
        enough: int | None = None,
    ) -> dict[str, SignedMessage]:
        """Answers that are no refusals."""
        letter = self.correspondence.letter
        asked = {
            name: letter(name, kind, order, words, arrays) for name, (words, arrays) in told.items()
        }
        answers = self.correspondence.ask(asked, seconds, enough)
        came = {
            name: answer for name, answer in answers.items() if isinstance(answer, SignedMessage)
        }
        self._refused = {
            name: refusal_of(answer.head)
            for name, answer in came.items()
            if answer.head.get("kind") == "refused"
        }
        return {name: answer for name, answer in came.items() if name not in self._refused}
