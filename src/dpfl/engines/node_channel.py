"""Letters to nodes by name, each until it is answered: the same bytes again where one was lost,
till a deadline.

Who is at which address is learnt from letters that a node signed; what a carrier says is believed
of nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpfl.engines.head_memory import HeadMemory
from dpfl.protocol import messages
from dpfl.protocol.messages import SignedMessage
from dpfl.protocol.transport import Delivery, Transport
from dpfl.refusals import SENTENCES, ProtocolError, RefusalReason

POLL = 0.25
"""Seconds that a carrier is waited for at a time."""
AGAIN = 2.0
"""Seconds before a letter that was lost is sent again."""
GRACE = 3.0
"""Seconds that more answers are waited for once there are enough."""
GREETED = 15.0
"""Seconds after which an address that did not say its name is asked again."""
EVERYONE = "*"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class InvalidReply:
    """Why an answer that came cannot be used; the words are ours, none of the sender's."""

    reason: str


@dataclass
class NodeChannel:
    """Of one run: the owner's key signs what goes out, a node's own what comes back."""

    post: Transport
    run: str
    key: Ed25519PrivateKey
    nodes: Mapping[str, Ed25519PublicKey]
    most: int
    """Bytes that an answer may have."""
    memory: HeadMemory | None = None
    """Of what nodes signed."""
    addresses: dict[str, str] = field(default_factory=dict)
    _greetings: dict[str, tuple[str, bytes, float]] = field(default_factory=dict)

    def letter(
        self,
        to: str,
        kind: str,
        order: str,
        words: Mapping[str, object],
        arrays: Arrays | None = None,
    ) -> bytes:
        return messages.write(
            {"kind": kind, "run": self.run, "to": to, "order": order, **words},
            arrays or {},
            self.key,
        )

    def ask(
        self, asked: Mapping[str, bytes], seconds: float, enough: int | None = None
    ) -> dict[str, SignedMessage | InvalidReply]:
        """The answers of all, or of those who answered in time; others are not waited for long once
        there are `enough`.
        """
        answers: dict[str, SignedMessage | InvalidReply] = {}
        tickets: dict[str, str] = {}
        due = dict.fromkeys(asked, 0.0)
        end = time.monotonic() + seconds
        while len(answers) < len(asked) and time.monotonic() < end:
            self._greet()
            now = time.monotonic()
            for name in [
                name for name, when in due.items() if when <= now and name in self.addresses
            ]:
                tickets[self.post.send(self.addresses[name], asked[name])] = name
                del due[name]
            for delivery in self.post.receive(min(POLL, max(end - time.monotonic(), 0.0))):
                if self._named(delivery):
                    continue
                name = tickets.pop(delivery.ticket, "")
                if not name or name in answers:
                    continue
                if delivery.letter is None:
                    due[name] = time.monotonic() + AGAIN
                else:
                    answers[name] = self._read(name, asked[name], delivery.letter)
                    if enough is not None and len(answers) >= enough:
                        end = min(end, time.monotonic() + GRACE)
        self._remember(answers)
        return answers

    def _remember(self, answers: Mapping[str, SignedMessage | InvalidReply]) -> None:
        """The heads of ledgers that answers carry, on disk before the answers are used."""
        if self.memory is None:
            return
        for name, answer in answers.items():
            if isinstance(answer, SignedMessage):
                self.memory.take(name, answer)
        self.memory.save()

    def _greet(self) -> None:
        """Whoever is at an address that has no name yet is asked for it."""
        now, known = time.monotonic(), set(self.addresses.values())
        asked = {address: when for address, _, when in self._greetings.values()}
        for address in self.post.nodes():
            if address not in known and now - asked.get(address, -GREETED) >= GREETED:
                ping = self.letter(EVERYONE, "ping", address, {})
                self._greetings[self.post.send(address, ping)] = (address, ping, now)

    def _named(self, delivery: Delivery) -> bool:
        """Whether it answers a greeting; a name is believed that its key signed."""
        address, ping, _ = self._greetings.pop(delivery.ticket, ("", b"", 0.0))
        if not address:
            return False
        for name in self.nodes if delivery.letter is not None else ():
            found = self._read(name, ping, delivery.letter or b"")
            if isinstance(found, SignedMessage) and found.head.get("kind") == "pong":
                self.addresses[name] = address
        return True

    def _read(self, name: str, asked: bytes, answer: bytes) -> SignedMessage | InvalidReply:
        try:
            letter = messages.read(answer, self.nodes[name], self.most)
        except ProtocolError as bad:
            return InvalidReply(f"its answer cannot be used: {SENTENCES[bad.reason]}")
        head = letter.head
        if (
            head.get("run") != self.run
            or head.get("from") != name
            or head.get("answers") != messages.digest(asked)
        ):
            return InvalidReply("its letter answers another one")
        return letter


def refusal_of(head: Mapping[str, Any]) -> str:
    """The node's reason, which is one of a few; whatever else it says is not passed on."""
    reason = str(head.get("reason"))
    return (
        SENTENCES[RefusalReason(reason)]
        if reason in set(RefusalReason)
        else "The node refuses, for a reason that is not known here."
    )
