"""What statement.json says, held against the statement that follows from record, checkpoint and
ledgers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cached_property
from typing import Any

from dpfl.certificate.figures import Epsilon, between, number, same_figure, stated_figure
from dpfl.privacy import PrivacyStatement, Randomness
from dpfl.run.accounts import Accounts
from dpfl.run.statement import privacy_statement

FIGURES = ("proven", "used", "claimed")
"""Epsilons that grow where other runs use the same ledgers later."""
COUNTED = ("releases", "most")
"""Counts that do."""


class RestatedStatement:
    """The statement of a run made again: as the ledgers are now, and as they stood at the run's own
    last row.
    """

    def __init__(self, accounts: Accounts, randomness: Randomness) -> None:
        self._accounts, self._randomness = accounts, randomness
        self.now = privacy_statement(accounts, randomness)

    @cached_property
    def _high(self) -> dict[str, Any]:
        return _as_json(self.now)

    @cached_property
    def _low(self) -> dict[str, Any]:
        statement = privacy_statement(self._accounts, self._randomness, at_own_last_row=True)
        return _as_json(statement)

    def differences(self, told: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Each word of a statement that is not what it should be, with what it says and what it
        should say.

        A figure was true when it was written if it is between that of the run's own last row and
        that of now: no epsilon of a ledger ever falls. Where no other run used the ledgers since,
        both are one.
        """
        defaults = {field.name: _default(field) for field in fields(PrivacyStatement)}
        for word, truth in self._high.items():
            said = told.get(word, defaults[word]) if word in defaults else told.get(word)
            if not self._fits(word, said, truth):
                yield word, said, truth
        for word in told.keys() - self._high.keys():
            yield word, told[word], "no such word"
        if (largest := _largest(told.get("per_client"))) is not None and not same_figure(
            told.get("proven"), largest
        ):
            yield "proven", told.get("proven"), f"{largest}, the largest of per_client"

    def _fits(self, word: str, said: Any, truth: Any) -> bool:
        try:
            if word in FIGURES:
                return same_figure(said, truth) or between(self._low[word], said, truth)
            if word == "per_client":
                return self._each(word, said, truth)
            if word == "stated":
                return said == truth or self._total(said, truth)
            if word in COUNTED:
                return self._each(word, said, truth, 0)
        except (TypeError, ValueError, AttributeError):
            return False
        return bool(said == truth)

    def _each(
        self, word: str, said: Any, truth: Mapping[str, Any], missing: int | None = None
    ) -> bool:
        """Of every client its epsilon, of every kind of release its count; a kind that came later
        may be missing.
        """
        if said == truth:
            return True
        names = said.keys() == truth.keys() if missing is None else said.keys() <= truth.keys()
        low = self._low[word]
        return bool(names) and all(
            between(low.get(name, missing), said.get(name, missing), high)
            for name, high in truth.items()
        )

    def _total(self, said: Any, truth: Mapping[str, Any]) -> bool:
        """It is of the account with the most releases, which may be another one now."""
        low = self._low["stated"]
        return said.keys() <= low.keys() | truth.keys() and between(
            sum(low.values()), sum(said.values()), sum(truth.values())
        )


def _as_json(statement: PrivacyStatement) -> dict[str, Any]:
    """As a file holds it: lists for tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in statement.to_dict().items()
    }


def _default(field: Any) -> Any:
    """Of a word that an older version did not write; None where every version did."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    default = None if field.default is MISSING else field.default
    return list(default) if isinstance(default, tuple) else default


def _largest(clients: Any) -> Epsilon | None:
    """None where there is none, or where one of them is no epsilon."""
    try:
        return stated_figure(max(map(number, clients.values()))) if clients else None
    except (AttributeError, ValueError):
        return None
