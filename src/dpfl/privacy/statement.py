"""The privacy statement: what a run cost in privacy, said in full.

A bare epsilon says nothing. A guarantee names its unit, its neighbours, delta, the adversary and
the accountant. `PrivacyStatement` holds all of them, and tells apart three epsilons:

- *proven*: an upper bound by a proven accountant, for the most releases that the run could make. It
  was fixed before the run.
- *used*: the epsilon of the releases that were made. If their number depends on private data, it is
  no guarantee.
- *claimed*: what the paper says of its system, by its own formula. It can lie below the truth.

Figures are rounded up: a figure with fewer digits must not say less than the figure. `to_dict`
fixes the words that files and certificates hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dpfl.notebook_repr import NotebookView


def figure(epsilon: float | None) -> float | str | None:
    """Writes an epsilon as JSON holds it.

    Args:
        epsilon: The epsilon; None for none.

    Returns:
        The epsilon, rounded up to 6 digits; infinity is the word "unbounded".
    """
    if epsilon is None:
        return None
    return rounded_up(epsilon, 6) if math.isfinite(epsilon) else "unbounded"


def _number(figure: float | str | None) -> float | None:
    if figure is None:
        return None
    return math.inf if figure == "unbounded" else float(figure)


def rounded_up(epsilon: float, digits: int = 4) -> float:
    """Rounds up, so that fewer digits do not say less.

    Args:
        epsilon: The epsilon.
        digits: The digits after the point.

    Returns:
        The rounded epsilon.
    """
    scale = 10.0**digits
    return math.ceil(epsilon * scale - 1e-9) / scale


NOISE = {
    "floating-point": "floating-point, whose last digits can tell of the sum beneath; for real "
    "data it is not enough",
    "secure": "secure: whole numbers on a grid, from a stream cipher",
    "shared": "shared by the clients: whole numbers on a grid, from a stream cipher",
}


def unit_in_words(unit: str) -> str:
    """Describes the unit of a guarantee.

    Args:
        unit: The unit.

    Returns:
        A phrase such as "one sample".
    """
    if unit == "person":
        return (
            "one person, everything that they have at one client; a person at two clients "
            "counts twice, epsilon adds up"
        )
    return f"one {unit}"


@dataclass(frozen=True)
class PrivacyStatement(NotebookView, shown_by="statement_view"):
    """The guarantee of a run: for whom, against whom, and how much of it is proven.

    Attributes:
        unit: The unit of privacy: a sample, a person, a client, or "none".
        neighbours: The neighbouring relation.
        delta: The delta of every epsilon.
        adversary: Who may try to learn about a unit, in words.
        accountant: The accountant of the proven figures.
        proven: The proven epsilon.
        claimed: The epsilon that a paper claims; None for none.
        claim: How the paper arrives at it.
        unaccounted: Releases that no figure covers.
        per_client: The proven epsilon of each client.
        releases: How often each kind of release was made.
        stated: The releases as the paper counts them, in the ledger's words; `claimed` is computed
            from them.
        assumptions: What the guarantee assumes.
        noise: The kind of noise: "floating-point", "shared", "secure", or "none".
        warnings: What makes the guarantee weaker than its figures look. They are part of the
            statement, so nothing can leave them out.
        used: The epsilon of what was released. If that depends on what came out, it is no
            guarantee.
        most: The most releases of each kind that `proven` covers.
        asked: What clients were asked beside their updates, each a release of its own.
    """

    unit: str
    neighbours: str
    delta: float
    adversary: str
    accountant: str
    proven: float
    claimed: float | None
    claim: str = ""
    unaccounted: tuple[str, ...] = ()
    per_client: Mapping[str, float] = field(default_factory=dict)
    releases: Mapping[str, int] = field(default_factory=dict)
    stated: Mapping[str, int] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    noise: str = "floating-point"
    warnings: tuple[str, ...] = ()
    used: float | None = None
    most: Mapping[str, int] = field(default_factory=dict)
    asked: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Writes the statement as JSON values.

        Returns:
            One value per field.
        """
        fields = asdict(self)
        fields["proven"] = figure(self.proven)
        fields["claimed"] = figure(self.claimed)
        fields["used"] = figure(self.used)
        fields["per_client"] = {
            client: figure(epsilon) for client, epsilon in self.per_client.items()
        }
        return fields

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> PrivacyStatement:
        """Reads a statement that `to_dict` wrote.

        Args:
            record: The values. Names that this version does not know are left out.

        Returns:
            The statement.

        Raises:
            TypeError: If a value is missing that every version wrote.
            ValueError: If an epsilon is none.
        """
        names = {field.name for field in fields(cls)}
        values: dict[str, Any] = {name: value for name, value in record.items() if name in names}
        values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        for name in ("proven", "claimed", "used"):
            values[name] = _number(values.get(name))
        values["per_client"] = {
            client: _number(epsilon) for client, epsilon in values.get("per_client", {}).items()
        }
        return cls(**values)

    def to_json(self) -> str:
        """Writes the statement as JSON.

        Returns:
            The text.
        """
        return json.dumps(self.to_dict(), indent=2)

    def lines(self) -> list[tuple[str, str]]:
        """Lays the statement out in lines, for the terminal and for pages.

        Returns:
            Heading and text of each line.
        """
        rows = [("proven", self._proven()), ("claimed", self._claimed())]
        if self.used is not None and self.used < self.proven < math.inf:
            rows += [
                (
                    "used",
                    f"epsilon {rounded_up(self.used):.4f} of it; that number follows what came out "
                    "and is no guarantee",
                )
            ]
        if self.unit != "none":
            rows += [("unit", f"{unit_in_words(self.unit)}; neighbours: {self.neighbours}")]
        rows += [("warning", warning) for warning in self.warnings]
        rows += [("adversary", self.adversary)]
        if self.noise in NOISE:
            rows += [("noise", NOISE[self.noise])]
        rows += [
            ("releases", f"{self._count(event)} x {event}")
            for event in {**self.releases, **self.most}
        ]
        rows += [("asked", question) for question in self.asked]
        rows += [("not accounted for", release) for release in self.unaccounted]
        rows += [("assumes", assumption) for assumption in self.assumptions]
        return rows

    def _proven(self) -> str:
        if math.isinf(self.proven):
            return "unbounded: no epsilon holds"
        spread = [epsilon for epsilon in self.per_client.values() if math.isfinite(epsilon)]
        low, high = (rounded_up(pick(spread, default=0.0)) for pick in (min, max))
        among = f"; clients {low:.4f} to {high:.4f}" if len(spread) > 1 else ""
        return (
            f"epsilon {rounded_up(self.proven):.4f} at delta {self.delta:g} by "
            f"{self.accountant}{among}"
        )

    def _count(self, event: str) -> str:
        count = self.releases.get(event, 0)
        most = self.most.get(event, count)
        return f"{count} (at most {most})" if most > count else str(count)

    def _claimed(self) -> str:
        if self.claimed is None:
            return f"nothing{': ' + self.claim if self.claim else ''}"
        value = (
            "unbounded" if math.isinf(self.claimed) else f"epsilon {rounded_up(self.claimed):.4f}"
        )
        return f"{value} ({self.claim})"

    def __str__(self) -> str:
        width = max(len(heading) for heading, _ in self.lines())
        return "\n".join(f"{heading:<{width}}  {text}" for heading, text in self.lines())
