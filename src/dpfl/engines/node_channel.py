"""Sends messages to nodes by name, and collects their answers until a deadline.

The transport below knows addresses only. Which node is at which address is learned from messages
that the node signed; nothing that a transport says is believed. A message that was lost is sent
again, the same bytes, so that a node that has executed the task already replays its stored reply.
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
from dpfl.protocol.messages import EVERYONE, SignedMessage
from dpfl.protocol.transport import Delivery, Transport
from dpfl.refusals import SENTENCES, ProtocolError, RefusalReason

POLL = 0.25
"""Seconds to wait for the transport at a time."""
AGAIN = 2.0
"""Seconds before a message that was lost is sent again."""
GRACE = 3.0
"""Seconds to wait for more answers once there are enough."""
GREETING_INTERVAL = 15.0
"""Seconds before an address that did not say its name is asked again."""
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class InvalidReply:
    """The reason why an answer cannot be used.

    Attributes:
        reason: A sentence of ours; nothing of the sender's is in it.
    """

    reason: str


@dataclass
class NodeChannel:
    """Messages between the server and the nodes of one run.

    Attributes:
        transport: Carries the messages.
        run: The run.
        key: The key of the run's owner, which signs what goes out.
        nodes: The public key of each node by name, which must have signed what comes back.
        most: The most bytes of an answer.
        memory: Remembers the heads of ledgers that nodes signed.
        addresses: The addresses of the nodes that have said their names.
    """

    transport: Transport
    run: str
    key: Ed25519PrivateKey
    nodes: Mapping[str, Ed25519PublicKey]
    most: int
    memory: HeadMemory | None = None
    addresses: dict[str, str] = field(default_factory=dict)
    _greetings: dict[str, tuple[str, bytes, float]] = field(default_factory=dict)
    """By request id: the address that was greeted, the message, and when."""

    def message(
        self,
        to: str,
        kind: str,
        task_name: str,
        words: Mapping[str, object],
        arrays: Arrays | None = None,
    ) -> bytes:
        """Writes a message to a node.

        Args:
            to: The node's name.
            kind: What is asked for.
            task_name: The name of the task or step.
            words: Further fields.
            arrays: The arrays.

        Returns:
            The signed message.
        """
        routing = {"kind": kind, "run": self.run, "to": to, "order": task_name}
        return messages.write({**routing, **words}, arrays or {}, self.key)

    def ask(
        self, requests: Mapping[str, bytes], seconds: float, enough: int | None = None
    ) -> dict[str, SignedMessage | InvalidReply]:
        """Sends messages and collects the answers.

        Args:
            requests: The message to each node by name.
            seconds: How long to wait.
            enough: A number of answers after which the others are not waited for long.

        Returns:
            The answers of the nodes that answered in time. The heads of ledgers in them are on disk
            before this returns.
        """
        answers: dict[str, SignedMessage | InvalidReply] = {}
        names: dict[str, str] = {}
        send_times = dict.fromkeys(requests, 0.0)
        end = time.monotonic() + seconds
        while len(answers) < len(requests) and time.monotonic() < end:
            self._greet()
            self._send(requests, send_times, names)
            for delivery in self.transport.receive(min(POLL, max(end - time.monotonic(), 0.0))):
                if self._is_greeting(delivery):
                    continue
                name = names.pop(delivery.request_id, "")
                if not name or name in answers:
                    continue
                if delivery.message is None:
                    send_times[name] = time.monotonic() + AGAIN
                    continue
                answers[name] = self._read(name, requests[name], delivery.message)
                if enough is not None and len(answers) >= enough:
                    end = min(end, time.monotonic() + GRACE)
        self._remember(answers)
        return answers

    def _send(
        self, requests: Mapping[str, bytes], send_times: dict[str, float], names: dict[str, str]
    ) -> None:
        """Sends the messages that are due to nodes whose addresses are known."""
        now = time.monotonic()
        for name, when in list(send_times.items()):
            if when <= now and name in self.addresses:
                names[self.transport.send(self.addresses[name], requests[name])] = name
                del send_times[name]

    def _remember(self, answers: Mapping[str, SignedMessage | InvalidReply]) -> None:
        """Stores the heads of ledgers in the answers, before the answers are used."""
        if self.memory is None:
            return
        for name, answer in answers.items():
            if isinstance(answer, SignedMessage):
                self.memory.take(name, answer)
        self.memory.save()

    def _greet(self) -> None:
        """Asks whoever is at an address without a name for its name."""
        now, names = time.monotonic(), set(self.addresses.values())
        greeting_times = {address: when for address, _, when in self._greetings.values()}
        for address in self.transport.nodes():
            recent = now - greeting_times.get(address, -GREETING_INTERVAL) < GREETING_INTERVAL
            if address not in names and not recent:
                ping = self.message(EVERYONE, "ping", address, {})
                self._greetings[self.transport.send(address, ping)] = (address, ping, now)

    def _is_greeting(self, delivery: Delivery) -> bool:
        """Says whether a delivery answers a greeting. The signature proves the name of the node."""
        address, ping, _ = self._greetings.pop(delivery.request_id, ("", b"", 0.0))
        if not address:
            return False
        for name in self.nodes if delivery.message is not None else ():
            answer = self._read(name, ping, delivery.message or b"")
            if isinstance(answer, SignedMessage) and answer.header.get("kind") == "pong":
                self.addresses[name] = address
        return True

    def _read(self, name: str, request: bytes, answer: bytes) -> SignedMessage | InvalidReply:
        """Reads an answer. It is believed if its node signed it, for this run, about this very
        message.
        """
        try:
            message = messages.read(answer, self.nodes[name], self.most)
        except ProtocolError as error:
            return InvalidReply(f"its answer cannot be used: {SENTENCES[error.reason]}")
        head = message.header
        same_run = head.get("run") == self.run and head.get("from") == name
        if not same_run or head.get("answers") != messages.digest(request):
            return InvalidReply("its message answers another request")
        return message


def refusal_of(head: Mapping[str, Any]) -> str:
    """Says why a node refuses.

    Args:
        head: The fields of its answer.

    Returns:
        The sentence of its reason, which is one of a few. Whatever else the node says is not passed
        on.
    """
    reason = str(head.get("reason"))
    if reason in set(RefusalReason):
        return SENTENCES[RefusalReason(reason)]
    return "The node refuses, for a reason that is not known here."
