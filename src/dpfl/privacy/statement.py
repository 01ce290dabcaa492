"""The privacy statement: what a run cost in privacy, in full.

A bare epsilon says nothing. A guarantee names its unit, its neighbours, delta, the adversary and
the accountant. `PrivacyStatement` holds all of them, and tells three epsilons apart:

- *proven*: an upper bound by a proven accountant, for the most releases that the run could make. It
  was fixed before the run.
- *used*: the epsilon of the releases that were made. If their number depends on private data, it is
  no guarantee.
- *claimed*: what the paper says of its system, by its own formula. It can lie below the truth.

Figures are rounded up: a figure with fewer digits must not say less than the figure. `to_dict`
fixes the words that files and certificates hold, and `statement_view.py` puts them into sentences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any

from dpfl.deprecation import keep_old_names, renamed_keywords
from dpfl.notebook_repr import NotebookView
from dpfl.privacy.figures import figure as figure
from dpfl.privacy.figures import from_figure
from dpfl.privacy.figures import rounded_up as rounded_up
from dpfl.privacy.statement_view import StatementView


def written_key(field: Field[Any]) -> str:
    """Names the key under which `statement.json` has a field of a statement.

    Args:
        field: A field of `PrivacyStatement`.

    Returns:
        The key: the name of the field, unless an earlier version wrote another.
    """
    return str(field.metadata.get("key", field.name))


@keep_old_names(asked="queries", questions="queries")
@dataclass(frozen=True)
class PrivacyStatement(NotebookView, shown_by="statement_page"):
    """The guarantee of a run: for whom, against whom, and how much of it is proven."""

    unit: str
    """What is protected: "sample", "person", "client", or "none"."""
    neighbours: str
    """How two neighbouring datasets differ, for example "add/remove one"."""
    delta: float
    adversary: str
    """Who may see what without breaking the guarantee."""
    accountant: str
    proven: float
    """The epsilon that holds, an upper bound; infinity if none does."""
    claimed: float | None
    """The epsilon by the paper's own accounting; None if the paper states none."""
    claim: str = ""
    """Where the claim comes from."""
    unaccounted: tuple[str, ...] = ()
    """Values that were released without protection."""
    per_client: Mapping[str, float] = field(default_factory=dict)
    """The proven epsilon of each account."""
    releases: Mapping[str, int] = field(default_factory=dict)
    """How often each kind of release was made, at the client with the most."""
    stated: Mapping[str, int] = field(default_factory=dict)
    """The releases as the paper counts them, in the ledger's words. `claimed` is computed from
    them.
    """
    assumptions: tuple[str, ...] = ()
    noise: str = "floating-point"
    """The kind of noise: "floating-point", "shared", "secure", or "none"."""
    warnings: tuple[str, ...] = ()
    """What makes the guarantee weaker than its figures look. Warnings are part of the statement,
    so that no page can leave them out.
    """
    used: float | None = None
    """The epsilon of what was released. If that depends on the outcome, it is no guarantee;
    `proven` was fixed in advance.
    """
    most: Mapping[str, int] = field(default_factory=dict)
    """The largest number of releases of each kind that `proven` covers."""
    queries: tuple[str, ...] = field(default=(), metadata={"key": "asked"})
    """Questions to the clients besides their updates. Each answer is a release of its own."""

    def to_dict(self) -> dict[str, object]:
        """Writes the statement as JSON holds it.

        Returns:
            Every field; epsilons rounded up, or the word "unbounded".
        """
        values = asdict(self)
        content = {written_key(field): values[field.name] for field in fields(self)}
        for name in ("proven", "claimed", "used"):
            content[name] = figure(content[name])
        content["per_client"] = {
            client: figure(epsilon) for client, epsilon in self.per_client.items()
        }
        return content

    @classmethod
    @renamed_keywords(told="content")
    def from_dict(cls, content: Mapping[str, Any]) -> PrivacyStatement:
        """Reads what `to_dict` wrote.

        Args:
            content: The content of `statement.json`. Keys that this version does not know are
                ignored.

        Returns:
            The statement.

        Raises:
            TypeError: If a key is missing that every version writes.
            ValueError: If an epsilon is neither a number nor "unbounded".
        """
        names = {written_key(field): field.name for field in fields(cls)}
        values: dict[str, Any] = {
            names[key]: tuple(value) if isinstance(value, list) else value
            for key, value in content.items()
            if key in names
        }
        for name in ("proven", "claimed", "used"):
            values[name] = from_figure(values.get(name))
        values["per_client"] = {
            client: from_figure(epsilon) for client, epsilon in values.get("per_client", {}).items()
        }
        return cls(**values)

    def to_json(self) -> str:
        """Writes the statement as JSON text.

        Returns:
            The content of `statement.json`.
        """
        return json.dumps(self.to_dict(), indent=2)

    @property
    def view(self) -> StatementView:
        """The statement in words."""
        return StatementView.of(self)

    def lines(self) -> list[tuple[str, str]]:
        """Puts the statement into words.

        Returns:
            Heading and text of every row, in the order in which people read them.
        """
        return list(self.view.rows)

    def __str__(self) -> str:
        return str(self.view)
