"""Limits: how much an owner of data allows to be released, in all and in part."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpfl.deprecation import renamed_keywords
from dpfl.privacy.accounting.accountant import accountant, proven_accountant
from dpfl.privacy.accounting.calibration import affordable, check_target
from dpfl.privacy.accounting.events import Event, EventCounts, add


@dataclass(frozen=True)
class Limit:
    """The limit of an owner on all releases together.

    Attributes:
        epsilon: The largest proven epsilon.
        delta: The delta.
        accountant: The name of the accountant, which must be a proven one.
    """

    epsilon: float
    delta: float
    accountant: str = "pld"

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)
        proven_accountant(self.accountant)

    @renamed_keywords(spent="events")
    def covers(self, events: EventCounts) -> bool:
        """Says whether events stay within the limit.

        Args:
            events: The count of each event.

        Returns:
            Whether their epsilon is at most the limit's.
        """
        by = accountant(self.accountant)
        return bool(by.quick and by.quick.epsilon(events, self.delta) <= self.epsilon) or (
            by.epsilon(events, self.delta) <= self.epsilon
        )

    @renamed_keywords(spent="events")
    def remaining(self, events: EventCounts, event: Event, horizon: int = 0) -> int:
        """Counts the further releases that fit.

        Args:
            events: What was released before.
            event: The event to release.
            horizon: How many releases the caller needs at most; 0 for no such number.

        Returns:
            The number of releases.
        """
        return affordable(
            events, event, self.epsilon, self.delta, accountant(self.accountant), horizon
        )

    @renamed_keywords(spent="events")
    def allows(self, events: EventCounts, event: Event, count: int, horizon: int = 0) -> bool:
        """Says whether further releases fit.

        Where all events are alike, a bound that is found once decides. Otherwise RDP decides first,
        which is quick and never below the truth, and the stated accountant where RDP says no.

        Args:
            events: What was released before.
            event: The event to release.
            count: How many releases.
            horizon: How many releases the caller needs at most.

        Returns:
            Whether all of them fit.
        """
        if any(other != event for other in events):
            quick = accountant("rdp-classic" if self.accountant == "rdp-classic" else "rdp")
            if quick.epsilon(add(events, event, count), self.delta) <= self.epsilon:
                return True
        return self.remaining(events, event, max(horizon, count)) >= count


DAY = 86_400.0


@dataclass(frozen=True)
class SubLimit:
    """A limit on a part of the spending: on that of one run, or of the last days.

    Attributes:
        limit: The limit.
        run: The run; empty for all runs.
        days: How many days back.
    """

    limit: Limit
    run: str = ""
    days: float = math.inf

    def since(self, now: float) -> float:
        """Computes the time from which debits count. A debit that is dated later than now counts
        too.

        Args:
            now: The time.

        Returns:
            The earliest time of a debit that counts.
        """
        return now - self.days * DAY
