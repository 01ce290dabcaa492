"""Messages from inside a Flower server app, over the `Grid` that Flower gives to it.

This is for those who have a Flower deployment already.
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
    """Carries messages over a `Grid`. Implements `dpfl.protocol.transport.Transport`."""

    def __init__(self, grid: Grid, most: int, life: float = LIFE_SECONDS) -> None:
        self._grid, self.most, self._life = grid, most, life
        self._addresses: dict[str, str] = {}

    def nodes(self) -> Sequence[str]:
        """Lists the nodes that are connected now.

        Returns:
            Their ids at Flower.
        """
        return [str(node) for node in self._grid.get_node_ids()]

    def send(self, address: str, message: bytes) -> str:
        """Sends a message without waiting for its answer.

        Args:
            address: A node's id at Flower.
            message: The signed message.

        Returns:
            The request id.
        """
        content = Message(
            pack(message), dst_node_id=int(address), message_type=KIND, ttl=self._life
        )
        (request_id,) = self._grid.push_messages([content])
        self._addresses[request_id] = address
        return request_id

    def receive(self, seconds: float) -> list[Delivery]:
        """Collects what has come back since the last call.

        Args:
            seconds: How long to wait if nothing is there.

        Returns:
            The deliveries.
        """
        until, nap = time.monotonic() + seconds, FIRST_NAP
        while True:
            messages = self._grid.pull_messages(list(self._addresses)) if self._addresses else []
            deliveries = [self._delivery(message) for message in messages]
            if deliveries or time.monotonic() >= until:
                return [delivery for delivery in deliveries if delivery.request_id]
            time.sleep(max(0.0, min(nap, until - time.monotonic())))
            nap = min(LAST_NAP, 1.3 * nap)

    def _delivery(self, message: Message) -> Delivery:
        """Makes a delivery by the request id alone. The source of an error cannot be relied on."""
        request_id = message.metadata.reply_to_message_id
        address = self._addresses.pop(request_id, "")
        try:
            answer = None if message.has_error() else unpack(message.content, self.most)
        except UnreadableMessage:
            answer = None
        return Delivery(address, request_id if address else "", answer)

    def close(self) -> None:
        """Forgets what is under way."""
        self._addresses.clear()
