"""A node's part in secure sums: its keys, the sum under way, and what it answered, in memory alone.

A node that was started again has nothing of it: it is missing until the next set-up, and can use no
mask twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.client.task import ClientTask
from dpfl.protocol import secure_sum_messages
from dpfl.protocol.messages import SignedMessage
from dpfl.protocol.secure_sum_messages import Arrays, Words
from dpfl.protocol.task_messages import whole
from dpfl.refusals import ProtocolError, RefusalReason
from dpfl.secagg import MemberRefusal, SumGroup, SumId, SumMember, UnmaskingShares

MOST_SESSIONS = 8
"""Runs whose keys are held; the oldest go first, and are set up again if they go on."""
set_up_number = whole(0, 1 << 53)


@dataclass
class SumSession:
    member: SumMember
    at: SumId | None = None
    """The sum under way, or the last one."""
    order: str = ""
    """What the server knows that sum by."""
    said: dict[str, bytes] = field(default_factory=dict)
    """Answers of this sum, by the digest of the letter."""
    set_up: dict[str, bytes] = field(default_factory=dict)
    """Those before the first sum."""


class SecureSumClient:
    """By run. A set-up takes the place of one before it, and never of a later one, by the numbers
    that the run's owner gave them: letters can be late, and whoever carries them can keep them."""

    def __init__(self, name: str, key: Ed25519PrivateKey) -> None:
        self._name, self._key = name, key
        self._sessions: dict[str, SumSession] = {}
        self._latest: dict[str, int] = {}
        """The number of a run's last set-up here, also where its keys are no longer held."""

    def said(self, run: str, asked: str) -> bytes | None:
        session = self._sessions.get(run)
        return (session.said.get(asked) or session.set_up.get(asked)) if session else None

    def keep(self, run: str, asked: str, answer: bytes) -> None:
        session = self._session(run)
        (session.said if session.at else session.set_up)[asked] = answer

    def step(self, letter: SignedMessage, group: SumGroup) -> tuple[Words, Arrays]:
        """Set-up, or an exchange after the numbers were sent."""
        kind, run = letter.head["kind"], letter.head["run"]
        with refusing():
            if kind == "card":
                return self._card(run, group, set_up_number(letter.head["number"])), {}
            if kind == "meet":
                return self._meet(run, letter), {}
            return self._answer(letter, self._session(run))

    def _card(self, run: str, group: SumGroup, number: int) -> Words:
        """New keys for this run, signed; the sum under way, if there was one, is over for this
        node.
        """
        if number <= self._latest.get(run, -1):
            raise ProtocolError(RefusalReason.SET_UP_PAST)
        member = SumMember(group, self._name, self._key)
        self._latest[run] = number
        self._sessions.pop(run, None)
        self._sessions[run] = SumSession(member)
        for oldest in list(self._sessions)[:-MOST_SESSIONS]:
            del self._sessions[oldest]
        return {"kind": "card", "card": secure_sum_messages.card_to_words(member.card)}

    def _meet(self, run: str, letter: SignedMessage) -> Words:
        member = self._session(run).member
        member.meet(secure_sum_messages.cards(letter.head["cards"]))
        return {"kind": "met", "session": member.session}

    def _answer(self, letter: SignedMessage, session: SumSession) -> tuple[Words, Arrays]:
        head, at, member = letter.head, session.at, session.member
        if at is None or head["order"] != session.order:
            raise ProtocolError(RefusalReason.SUM_OVER)
        if head["kind"] == "votes":
            return secure_sum_messages.opened_to(
                member.open(secure_sum_messages.votes_from_words(head["votes"], at))
            )
        shown = secure_sum_messages.shown_from(
            head["survivors"], letter.arrays, at, self._name, member.size
        )
        answer = member.agree(shown)
        if isinstance(answer, UnmaskingShares):
            return secure_sum_messages.opened_to(answer)
        return {"kind": "vote", "signature": answer.signature.hex()}, {}

    def session(self, run: str) -> str:
        """What it is known by, once keys were shown."""
        found = self._sessions.get(run)
        return found.member.session if found else ""

    def expect(self, run: str, task: ClientTask, model: np.ndarray) -> SumId:
        """The sum that a task is for, before anything is paid; refused where nothing would be
        masked for it.
        """
        member = self._session(run).member
        at = secure_sum_messages.at_of(task, member.session, model)
        with refusing():
            member.expect(at)
        return at

    def mask(self, run: str, order: str, at: SumId, numbers: np.ndarray) -> Arrays:
        session = self._session(run)
        with refusing():
            masked = session.member.mask(at, numbers)
        session.at, session.order, session.said = at, order, {}
        return secure_sum_messages.masked_arrays(masked)

    def _session(self, run: str) -> SumSession:
        if run not in self._sessions:
            raise ProtocolError(RefusalReason.NO_KEYS)
        return self._sessions[run]


@contextmanager
def refusing() -> Iterator[None]:
    """A member's refusal, by the word for it."""
    try:
        yield
    except MemberRefusal as refusal:
        raise ProtocolError(RefusalReason(refusal.why)) from None
