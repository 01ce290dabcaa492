"""The privacy statement as people read it, in the order in which they read it.

Terminal, notebook, web page, report, model card and certificate page lay out these objects and
add no sentence or figure of their own. The module is part of `privacy` because all of them need it
and most of them lie below `views`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from dpfl.privacy.figures import epsilon_text
from dpfl.privacy.units import protects_nobody, protects_person

if TYPE_CHECKING:
    from dpfl.privacy.statement import PrivacyStatement

LOUD = ("warning", "not accounted for")
"""Headings of rows that a layout should make stand out."""

NO_GUARANTEE = "no guarantee"
"""What a list says of a run for which no epsilon holds."""

USED_NOTE = "this figure depends on the outcome and is no guarantee"
"""What must be said of an epsilon of the releases that were made."""

NOISE = {
    "floating-point": "floating-point: the last digits of a sum can reveal the value without "
    "noise, so it is not safe for real data",
    "secure": "secure: integers on a grid, drawn from a stream cipher",
    "shared": "shared by the clients: integers on a grid, drawn from a stream cipher",
}


@dataclass(frozen=True)
class PrivacyVerdict:
    """The one thing about a run's privacy that nobody may overlook."""

    level: Literal["proven", "condition", "nothing", "running"]
    """How a layout colours it: a guarantee, one under a condition, none, or not known yet."""
    title: str
    sentence: str
    details: str = ""
    """Adversary and accountant of a guarantee, for a page that does not list them beside it."""


@dataclass(frozen=True)
class StatementView:
    """A privacy statement as headings and texts."""

    rows: tuple[tuple[str, str], ...]
    """Heading and text. A heading may occur several times."""
    proven: str
    """The proven epsilon as a figure, or "unbounded"."""
    claimed: str
    """The epsilon that the paper claims as a figure, "unbounded", or "nothing"."""
    scope: str
    """What the figures are for: unit and delta. Without it an epsilon says nothing."""

    @classmethod
    def of(cls, statement: PrivacyStatement) -> StatementView:
        """Puts a statement into words.

        Args:
            statement: The guarantee of a run, or of a certificate.

        Returns:
            Its rows and figures.
        """
        return cls(
            rows=tuple(_rows(statement)),
            proven=epsilon_text(statement.proven),
            claimed=epsilon_text(statement.claimed, absent="nothing"),
            scope=scope(statement.unit, statement.delta),
        )

    def __str__(self) -> str:
        width = max(len(heading) for heading, _ in self.rows)
        return "\n".join(f"{heading:<{width}}  {text}" for heading, text in self.rows)


@dataclass(frozen=True)
class GuaranteeView:
    """What is proven of a run, an account or a node, as cells of a list or a table."""

    level: Literal["proven", "nothing", "running"]
    """How a layout colours it: a guarantee, none, or not known yet."""
    proven: str
    """The proven epsilon as a figure, "unbounded", or "not yet"."""
    claimed: str
    """The epsilon that the paper claims, "nothing", or "-" if it is not known yet."""
    unit: str
    """Whom it protects: "one sample", "nobody", or "-" if it is not known yet."""
    delta: str
    """Its delta; "-" if it is not known yet, or nobody is protected."""
    scope: str
    """What an epsilon is for: unit and delta."""

    @classmethod
    def of(cls, facts: Mapping[str, Any], delta: float | None = None) -> GuaranteeView:
        """Puts what is stated into words.

        Args:
            facts: The entries "proven", "claimed", "unit" and "delta" of a statement, as files
                hold them. Those that are not known yet may be missing.
            delta: The delta of the budget, which holds until the statement is written.

        Returns:
            The cells.
        """
        proven, unit, stated_delta = (facts.get(name) for name in ("proven", "unit", "delta"))
        is_final = isinstance(stated_delta, int | float)
        finite = isinstance(proven, int | float) and math.isfinite(proven)
        return cls(
            level="proven" if finite else "running" if proven is None else "nothing",
            proven=epsilon_text(proven, absent="not yet"),
            claimed=epsilon_text(facts.get("claimed"), absent="nothing" if unit else "-"),
            unit=protected_unit(unit),
            delta=f"{stated_delta:g}" if is_final and not protects_nobody(unit) else "-",
            scope=scope(unit or "", stated_delta if is_final else delta),
        )

    @property
    def short(self) -> str:
        """The proven epsilon in a list that has no heading which explains it."""
        return NO_GUARANTEE if self.level == "nothing" else self.proven

    @property
    def no_figure(self) -> str:
        """What stands where an epsilon is no number."""
        return NO_GUARANTEE if self.level == "nothing" else "-"

    def to_dict(self) -> dict[str, str]:
        """Lists all texts for a web page.

        Returns:
            The fields, `short` and `no_figure`.
        """
        return {**asdict(self), "short": self.short, "no_figure": self.no_figure}


def protected_unit(unit: str | None) -> str:
    """Says whom a guarantee protects, in a cell of a table.

    Args:
        unit: The word that was written; None or "" where nothing is written yet.

    Returns:
        For example "one sample"; "nobody" without noise, "-" if it is not known yet.
    """
    return "nobody" if protects_nobody(unit) else f"one {unit}" if unit else "-"


def unit_in_words(unit: str) -> str:
    """Says whom a guarantee protects.

    Args:
        unit: "sample", "person" or "client".

    Returns:
        The unit with its article; for a person, also what counts as one.
    """
    if protects_person(unit):
        return (
            "one person, with all of their data at one client; a person at two clients counts "
            "twice, and the epsilons add up"
        )
    return f"one {unit}"


def scope(unit: str, delta: float | None) -> str:
    """Says what an epsilon is for.

    Args:
        unit: The unit of privacy; "none" or "" if there is none.
        delta: The delta of the guarantee; None if it is not known.

    Returns:
        For example "for one sample, delta 1e-05".
    """
    unit_text = f"for one {unit}, " if unit not in ("", "none") else ""
    return unit_text + ("delta unknown" if delta is None else f"delta {delta:g}")


def large_delta(delta: float, units: int, meaning: str) -> str:
    """Warns of a delta of 1/n or more, which allows a mechanism that publishes one of n units.

    Args:
        delta: The delta of the guarantee.
        units: How many units there are.
        meaning: What these units are, such as "clients".

    Returns:
        The warning. It begins with a small letter and ends with a full stop.
    """
    return (
        f"delta {delta:g} is not below 1/{units} ({meaning}): it allows giving one of them away; "
        "lower it."
    )


def verdict(statement: PrivacyStatement, keyed: bool) -> PrivacyVerdict:
    """Judges a statement: proven, proven under a condition, or no guarantee.

    Args:
        statement: The statement of a finished run.
        keyed: Whether the noise came from a seed. The guarantee then holds only while nobody
            knows the seed.

    Returns:
        The verdict with its title and one to three sentences.
    """
    claim = ""
    if statement.claimed is not None:
        claim = (
            f" The paper's own accounting claims {epsilon_text(statement.claimed)}; that is no "
            "guarantee."
        )
    if math.isinf(statement.proven):
        leaks = "; ".join(statement.unaccounted) or "a release without noise"
        sentence = f"No epsilon holds: privacy is unbounded. Released without protection: {leaks}."
        return PrivacyVerdict("nothing", NO_GUARANTEE.capitalize(), sentence + claim)
    guarantee = (
        f"Epsilon {epsilon_text(statement.proven)} at delta {statement.delta:g} is proven for one "
        f"{statement.unit} ({statement.neighbours})"
    )
    details = f"Adversary: {statement.adversary}. Accountant: {statement.accountant}."
    if keyed:
        condition = (
            "but only while nobody knows the seed of the noise. Do not use such noise for real "
            "data."
        )
        sentence = f"{guarantee}, {condition}"
        return PrivacyVerdict("condition", "Proven under a condition", sentence, details)
    below = statement.claimed is not None and statement.claimed < statement.proven
    return PrivacyVerdict("proven", "Proven", f"{guarantee}.{claim if below else ''}", details)


def _rows(statement: PrivacyStatement) -> list[tuple[str, str]]:
    rows = [("proven", _proven_text(statement)), ("claimed", _claimed_text(statement))]
    if statement.used is not None and statement.used < statement.proven < math.inf:
        used_epsilon = epsilon_text(statement.used)
        rows.append(("used", f"epsilon {used_epsilon} of that; {USED_NOTE}"))
    if not protects_nobody(statement.unit):
        unit = f"{unit_in_words(statement.unit)}; neighbours: {statement.neighbours}"
        rows.append(("unit", unit))
    rows += [("warning", warning) for warning in statement.warnings]
    rows.append(("adversary", statement.adversary))
    if statement.noise in NOISE:
        rows.append(("noise", NOISE[statement.noise]))
    for event in {**statement.releases, **statement.most}:
        rows.append(("releases", f"{_count(statement, event)} x {event}"))
    rows += [("asked", question) for question in statement.queries]
    rows += [("not accounted for", release) for release in statement.unaccounted]
    rows += [("assumes", assumption) for assumption in statement.assumptions]
    return rows


def _proven_text(statement: PrivacyStatement) -> str:
    if math.isinf(statement.proven):
        return "unbounded: no epsilon holds"
    finite_epsilons = [
        epsilon for epsilon in statement.per_client.values() if math.isfinite(epsilon)
    ]
    clients = ""
    if len(finite_epsilons) > 1:
        least, largest = min(finite_epsilons), max(finite_epsilons)
        clients = f"; clients {epsilon_text(least)} to {epsilon_text(largest)}"
    return (
        f"epsilon {epsilon_text(statement.proven)} at delta {statement.delta:g} by "
        f"{statement.accountant}{clients}"
    )


def _claimed_text(statement: PrivacyStatement) -> str:
    if statement.claimed is None:
        return f"nothing{': ' + statement.claim if statement.claim else ''}"
    is_finite = math.isfinite(statement.claimed)
    return f"{'epsilon ' if is_finite else ''}{epsilon_text(statement.claimed)} ({statement.claim})"


def _count(statement: PrivacyStatement, event: str) -> str:
    count = statement.releases.get(event, 0)
    most = statement.most.get(event, count)
    return f"{count} (at most {most})" if most > count else str(count)
