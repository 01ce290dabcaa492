"""What a run cost in privacy, said in full: no bare epsilon anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dpfl.notebook_repr import NotebookView


def figure(epsilon: float | None) -> float | str | None:
    """Epsilon as JSON holds it: infinity is the word "unbounded"."""
    if epsilon is None:
        return None
    return rounded_up(epsilon, 6) if math.isfinite(epsilon) else "unbounded"


def _number(figure: float | str | None) -> float | None:
    if figure is None:
        return None
    return math.inf if figure == "unbounded" else float(figure)


def rounded_up(epsilon: float, digits: int = 4) -> float:
    """A figure with fewer digits must not say less than the figure."""
    scale = 10.0**digits
    return math.ceil(epsilon * scale - 1e-9) / scale


NOISE = {
    "floating-point": "floating-point, whose last digits can tell of the sum beneath; for real "
    "data it is not enough",
    "secure": "secure: whole numbers on a grid, from a stream cipher",
    "shared": "shared by the clients: whole numbers on a grid, from a stream cipher",
}


def unit_in_words(unit: str) -> str:
    if unit == "person":
        return (
            "one person, everything that they have at one client; a person at two clients "
            "counts twice, epsilon adds up"
        )
    return f"one {unit}"


@dataclass(frozen=True)
class PrivacyStatement(NotebookView, shown_by="statement_view"):
    """The guarantee of a run: for whom, against whom, and how much of it is proven."""

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
    """The releases as the paper counts them, in the ledger's words: what `claimed` is computed
    from.
    """
    assumptions: tuple[str, ...] = ()
    noise: str = "floating-point"
    """Of what kind: "floating-point", "shared", "secure", or "none"."""
    warnings: tuple[str, ...] = ()
    """What makes the guarantee weaker than its figures look; part of the statement, so that nothing
    can leave it out.
    """
    used: float | None = None
    """Epsilon of what was released. Where that depends on what came out it is no guarantee:
    `proven` was fixed beforehand.
    """
    most: Mapping[str, int] = field(default_factory=dict)
    """The most releases of each kind that `proven` covers."""
    asked: tuple[str, ...] = ()
    """What clients were asked beside their updates, each a release of its own."""

    def to_dict(self) -> dict[str, object]:
        fields = asdict(self)
        fields["proven"] = figure(self.proven)
        fields["claimed"] = figure(self.claimed)
        fields["used"] = figure(self.used)
        fields["per_client"] = {
            client: figure(epsilon) for client, epsilon in self.per_client.items()
        }
        return fields

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> PrivacyStatement:
        """A statement from what `to_dict` wrote; words that this version does not know are left
        out.

        Raises:
            TypeError: If a word is missing that every version wrote.
            ValueError: If an epsilon is none.
        """
        known = {field.name for field in fields(cls)}
        given: dict[str, Any] = {name: value for name, value in told.items() if name in known}
        given |= {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        for name in ("proven", "claimed", "used"):
            given[name] = _number(given.get(name))
        given["per_client"] = {
            client: _number(epsilon) for client, epsilon in given.get("per_client", {}).items()
        }
        return cls(**given)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def lines(self) -> list[tuple[str, str]]:
        """Heading and text, for the terminal and for pages."""
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
        made = self.releases.get(event, 0)
        most = self.most.get(event, made)
        return f"{made} (at most {most})" if most > made else str(made)

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
