"""How many local steps a round has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpfl.errors import DpflError


class Steps(Protocol):
    def next(self, round: int) -> int:
        """tau for this round, before it is capped at what the budgets leave."""

    def total(self, rounds: int) -> int:
        """How many steps a client makes in this many rounds, at most."""


@dataclass(frozen=True)
class Fixed:
    """The same tau in every round."""

    tau: int

    def __post_init__(self) -> None:
        if not isinstance(self.tau, int) or self.tau < 1:
            raise DpflError(f"tau must be at least 1 local step a round, not {self.tau}.")

    def next(self, round: int) -> int:
        return self.tau

    def total(self, rounds: int) -> int:
        return rounds * self.tau
