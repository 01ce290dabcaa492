"""Compares statement.json with the statement that follows from record, checkpoint and ledgers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cached_property
from typing import Any

from dpfl.certificate.figures import Epsilon, between, number, same_figure, stated_figure
from dpfl.privacy import PrivacyStatement, Randomness
from dpfl.privacy.statement import written_key
from dpfl.run.accounting.accounts import Accounts
from dpfl.run.statement import privacy_statement

FIGURES = ("proven", "used", "claimed")
"""Epsilons, which grow when later runs use the same ledgers."""
COUNTS = ("releases", "most")
"""Counts, which grow likewise."""


class RestatedStatement:
    """The statement of a run, made again in two ways.

    One follows from the ledgers as they are now, the other from the ledgers at the run's last row.
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

    def differences(self, statement: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Finds what is wrong in a statement.

        A figure was true when it was written if it lies between the one at the run's last row and
        the one now, because the epsilon of a ledger never falls. Where no other run has used the
        ledgers since, both are equal.

        Args:
            statement: The content of statement.json.

        Yields:
            Each wrong key, with what it says and what it should say.
        """
        defaults = {written_key(field): _default(field) for field in fields(PrivacyStatement)}
        for word, recomputed_value in self._high.items():
            stated_value = (
                statement.get(word, defaults[word]) if word in defaults else statement.get(word)
            )
            if not self._fits(word, stated_value, recomputed_value):
                yield word, stated_value, recomputed_value
        for word in statement.keys() - self._high.keys():
            yield word, statement[word], "no such word"
        largest = _largest(statement.get("per_client"))
        if largest is not None and not same_figure(statement.get("proven"), largest):
            yield "proven", statement.get("proven"), f"{largest}, the largest of per_client"

    def _fits(self, word: str, stated_value: Any, recomputed_value: Any) -> bool:
        try:
            if word in FIGURES:
                return same_figure(stated_value, recomputed_value) or between(
                    self._low[word], stated_value, recomputed_value
                )
            if word == "per_client":
                return self._each(word, stated_value, recomputed_value)
            if word == "stated":
                return stated_value == recomputed_value or self._total(
                    stated_value, recomputed_value
                )
            if word in COUNTS:
                return self._each(word, stated_value, recomputed_value, 0)
        except (TypeError, ValueError, AttributeError):
            return False
        return bool(stated_value == recomputed_value)

    def _each(
        self,
        word: str,
        stated_values: Any,
        recomputed_values: Mapping[str, Any],
        missing: int | None = None,
    ) -> bool:
        """Compares the epsilon of every client, or the count of every kind of release.

        A kind of release that came later may be missing.
        """
        if stated_values == recomputed_values:
            return True
        names = (
            stated_values.keys() == recomputed_values.keys()
            if missing is None
            else stated_values.keys() <= recomputed_values.keys()
        )
        low = self._low[word]
        return bool(names) and all(
            between(low.get(name, missing), stated_values.get(name, missing), high)
            for name, high in recomputed_values.items()
        )

    def _total(self, stated_values: Any, recomputed_values: Mapping[str, Any]) -> bool:
        """Compares totals, since another account may have the most releases by now."""
        low = self._low["stated"]
        return stated_values.keys() <= low.keys() | recomputed_values.keys() and between(
            sum(low.values()), sum(stated_values.values()), sum(recomputed_values.values())
        )


def _as_json(statement: PrivacyStatement) -> dict[str, Any]:
    """Writes the statement as JSON does, with lists for tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in statement.to_dict().items()
    }


def _default(field: Any) -> Any:
    """Returns the value of a key that an older version did not write; None where every version
    did.
    """
    if field.default_factory is not MISSING:
        return field.default_factory()
    default = None if field.default is MISSING else field.default
    return list(default) if isinstance(default, tuple) else default


def _largest(clients: Any) -> Epsilon | None:
    """Finds the largest epsilon; None where there is none, or where one of them is not an
    epsilon.
    """
    try:
        return stated_figure(max(map(number, clients.values()))) if clients else None
    except (AttributeError, ValueError):
        return None
