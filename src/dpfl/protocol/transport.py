"""Letters to nodes that are elsewhere, whoever carries them: a carrier sees bytes, and is trusted
with nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Delivery:
    """What came back for a ticket; no letter where the carrier says that it was lost."""

    address: str
    ticket: str
    letter: bytes | None


class Transport(Protocol):
    most: int
    """Bytes of the largest answer that is taken; a longer one counts as lost, and little of it is
    ever in memory.
    """

    def nodes(self) -> Sequence[str]:
        """The addresses of nodes that are connected now: the carrier's own words, not names."""

    def send(self, address: str, letter: bytes) -> str:
        """Does not wait; returns the ticket that an answer will have."""

    def receive(self, seconds: float) -> list[Delivery]:
        """What has come back since the last call; waits that long at most, and not where something
        is there.
        """

    def close(self) -> None: ...
