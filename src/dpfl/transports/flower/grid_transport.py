"""Letters from inside a server app, for those who have a Flower deployment already: over the `Grid`
that Flower gives it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from dpfl.protocol.transport import Delivery
from dpfl.transports.flower.flower_messages import (
    KIND,
    LIFE_SECONDS,
    UnreadableMessage,
    pack,
    unpack,
)

FIRST_NAP, LAST_NAP = 0.05, 0.5


class GridTransport:
    """A `dpfl.protocol.transport.Post`."""

    def __init__(self, grid: Grid, most: int, life: float = LIFE_SECONDS) -> None:
        self._grid, self.most, self._life = grid, most, life
        self._sent: dict[str, str] = {}

    def nodes(self) -> Sequence[str]:
        return [str(node) for node in self._grid.get_node_ids()]

    def send(self, address: str, letter: bytes) -> str:
        message = Message(pack(letter), dst_node_id=int(address), message_type=KIND, ttl=self._life)
        (ticket,) = self._grid.push_messages([message])
        self._sent[ticket] = address
        return ticket

    def receive(self, seconds: float) -> list[Delivery]:
        until, nap = time.monotonic() + seconds, FIRST_NAP
        while True:
            come = (
                [self._delivery(message) for message in self._grid.pull_messages(list(self._sent))]
                if self._sent
                else []
            )
            if come or time.monotonic() >= until:
                return [delivery for delivery in come if delivery.ticket]
            time.sleep(max(0.0, min(nap, until - time.monotonic())))
            nap = min(LAST_NAP, 1.3 * nap)

    def _delivery(self, message: Message) -> Delivery:
        """By the ticket alone: the source of an error is not to be relied on."""
        ticket = message.metadata.reply_to_message_id
        address = self._sent.pop(ticket, "")
        try:
            letter = None if message.has_error() else unpack(message.content, self.most)
        except UnreadableMessage:
            letter = None
        return Delivery(address, ticket if address else "", letter)

    def close(self) -> None:
        self._sent.clear()
