"""The claim of a paper about its own privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpfl.codec import part
from dpfl.deprecation import renamed_keywords
from dpfl.privacy import accountant
from dpfl.privacy.accounting.events import EventCounts


@part("claim")
@dataclass(frozen=True)
class Claim:
    """The claim of a paper about its own privacy.

    Attributes:
        text: The claim in words.
        accountant: The accountant that the paper uses; None where it uses a formula, or claims no
            epsilon.
        formula: Maps the number of releases to epsilon. It replaces the accountant.
    """

    text: str
    accountant: str | None = None
    formula: Callable[[int], float] | None = None

    @renamed_keywords(stated="events")
    def epsilon(self, events: EventCounts, delta: float) -> float | None:
        """Computes the epsilon that the paper claims.

        Args:
            events: The releases as the paper counts them.
            delta: The delta of the claim.

        Returns:
            The epsilon; None where none is claimed.
        """
        if self.formula:
            return self.formula(sum(events.values()))
        return accountant(self.accountant).epsilon(events, delta) if self.accountant else None


NO_CLAIM = Claim("no privacy is claimed")
