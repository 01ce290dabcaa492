"""What an owner of data allows to be spent in all."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfl.privacy.accounting.accountant import accountant, proven_accountant
from dpfl.privacy.accounting.calibration import affordable, check_target
from dpfl.privacy.accounting.events import Event, EventCounts, add


@dataclass(frozen=True)
class Limit:
    """What an owner allows to be spent in all."""

    epsilon: float
    delta: float
    accountant: str = "pld"

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)
        proven_accountant(self.accountant)

    def covers(self, spent: EventCounts) -> bool:
        by = accountant(self.accountant)
        return bool(by.quick and by.quick.epsilon(spent, self.delta) <= self.epsilon) or (
            by.epsilon(spent, self.delta) <= self.epsilon
        )

    def remaining(self, spent: EventCounts, event: Event, horizon: int = 0) -> int:
        return affordable(
            spent, event, self.epsilon, self.delta, accountant(self.accountant), horizon
        )

    def allows(self, spent: EventCounts, event: Event, count: int, horizon: int = 0) -> bool:
        """By a bound that is found once where all events are alike; else by RDP, which is quick and
        never below the truth, and by the stated accountant where RDP says no."""
        if any(other != event for other in spent):
            quick = accountant("rdp-classic" if self.accountant == "rdp-classic" else "rdp")
            if quick.epsilon(add(spent, event, count), self.delta) <= self.epsilon:
                return True
        return self.remaining(spent, event, max(horizon, count)) >= count


DAY = 86_400.0


@dataclass(frozen=True)
class SubLimit:
    """A limit on a part of what is spent: of one run, or of the last so many days."""

    limit: Limit
    run: str = ""
    days: float = math.inf

    def since(self, now: float) -> float:
        """What is dated later than now, by a clock that was set back, counts too."""
        return now - self.days * DAY
