"""The interface of whatever carries messages to nodes and answers back.

A transport sees bytes and is trusted with nothing. It may lose, delay, repeat, reorder or forge
messages: signatures, digests and names inside the messages decide what is believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Delivery:
    """The answer to a message, if one came.

    Attributes:
        address: Where the message was sent.
        request_id: What `Transport.send` returned for it.
        message: The answer; None where the transport knows that it was lost.
    """

    address: str
    request_id: str
    message: bytes | None


class Transport(Protocol):
    """Carries messages between a server and its nodes."""

    most: int
    """Bytes of the largest answer that is accepted. A longer one counts as lost, and little of it
    is ever in memory.
    """

    def nodes(self) -> Sequence[str]:
        """Lists the nodes that are connected now.

        Returns:
            Their addresses: the transport's own words, not the names of nodes.
        """

    def send(self, address: str, message: bytes) -> str:
        """Sends a message without waiting for its answer.

        Args:
            address: One of `nodes()`.
            message: The signed message.

        Returns:
            The request id that the answer's `Delivery` will have.
        """

    def receive(self, seconds: float) -> list[Delivery]:
        """Collects what has come back since the last call.

        Args:
            seconds: How long to wait if nothing is there.

        Returns:
            The deliveries.
        """

    def close(self) -> None:
        """Closes connections. What is under way is lost."""
