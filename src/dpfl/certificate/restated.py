"""Compares statement.json with the statement that follows from record, checkpoint and ledgers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cached_property
from typing import Any

from dpfl.certificate.figures import Epsilon, between, number, same_figure, stated_figure
from dpfl.privacy import PrivacyStatement, Randomness
from dpfl.privacy.statement import written_key
from dpfl.run.accounts import Accounts
from dpfl.run.statement import privacy_statement

FIGURES = ("proven", "used", "claimed")
"""Epsilons, which grow when later runs use the same ledgers."""
COUNTED = ("releases", "most")
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

    def differences(self, stated: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Finds what is wrong in a statement.

        A figure was true when it was written if it lies between the one at the run's last row and
        the one now, because the epsilon of a ledger never falls. Where no other run has used the
        ledgers since, both are equal.

        Args:
            stated: The content of statement.json.

        Yields:
            Each wrong key, with what it says and what it should say.
        """
        defaults = {written_key(field): _default(field) for field in fields(PrivacyStatement)}
        for word, truth in self._high.items():
            value = stated.get(word, defaults[word]) if word in defaults else stated.get(word)
            if not self._fits(word, value, truth):
                yield word, value, truth
        for word in stated.keys() - self._high.keys():
            yield word, stated[word], "no such word"
        largest = _largest(stated.get("per_client"))
        if largest is not None and not same_figure(stated.get("proven"), largest):
            yield "proven", stated.get("proven"), f"{largest}, the largest of per_client"

    def _fits(self, word: str, value: Any, truth: Any) -> bool:
        try:
            if word in FIGURES:
                return same_figure(value, truth) or between(self._low[word], value, truth)
            if word == "per_client":
                return self._each(word, value, truth)
            if word == "stated":
                return value == truth or self._total(value, truth)
            if word in COUNTED:
                return self._each(word, value, truth, 0)
        except (TypeError, ValueError, AttributeError):
            return False
        return bool(value == truth)

    def _each(
        self, word: str, values: Any, truth: Mapping[str, Any], missing: int | None = None
    ) -> bool:
        """Compares the epsilon of every client, or the count of every kind of release.

        A kind of release that came later may be missing.
        """
        if values == truth:
            return True
        names = values.keys() == truth.keys() if missing is None else values.keys() <= truth.keys()
        low = self._low[word]
        return bool(names) and all(
            between(low.get(name, missing), values.get(name, missing), high)
            for name, high in truth.items()
        )

    def _total(self, values: Any, truth: Mapping[str, Any]) -> bool:
        """Compares totals, since another account may have the most releases by now."""
        low = self._low["stated"]
        return values.keys() <= low.keys() | truth.keys() and between(
            sum(low.values()), sum(values.values()), sum(truth.values())
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
