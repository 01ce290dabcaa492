"""Runs side by side in words: the rows, figures and notes of every table of runs.

Terminal, notebook, report and web page choose columns of a `ComparisonView` and lay them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dpfl.privacy.figures import epsilon_text
from dpfl.privacy.statement_view import GuaranteeView
from dpfl.privacy.units import NO_UNIT
from dpfl.run.metrics import figure
from dpfl.run.outcome_view import ending_in_words, metric_text
from dpfl.views.compare_groups import CONFIDENCE, RunGroup

ALIKE = 0.01
"""Epsilons that differ by less than this share count as equal in a comparison."""

MIXED_HEADING = "measured"
"""The heading above metrics with different names."""


@dataclass(frozen=True)
class ComparisonRow:
    """One run, or several runs that differ only by their seed, as cells of a table."""

    label: str
    """The system and what tells it from the other rows, or the name of a run."""
    seeds: str
    """How many runs, or how many of them have a metric."""
    rounds: str
    metric: str
    """The first metric with its interval over seeds; with its name if rows differ in it."""
    level: Literal["proven", "nothing", "running"]
    """How a layout colours the proven epsilon."""
    proven: str
    """The largest proven epsilon of the runs, "unbounded", or "not yet"."""
    claimed: str
    unit: str
    """Whom the epsilon protects: "one sample", "nobody", or "-" if it is not known yet."""
    delta: str
    accountant: str
    used: str
    """The epsilon of what was released if it is smaller than the proven one; else ""."""
    ending: str
    """Why the runs ended, one reason per line."""

    @property
    def guarantee(self) -> str:
        """The proven epsilon with unit, delta and accountant, in a cell of two or three lines."""
        if self.level != "proven":
            return self.proven
        used_line = f"\nused {self.used}" if self.used else ""
        return (
            f"{self.proven} per {self.unit.removeprefix('one ')}\n"
            f"{self.delta}, {self.accountant}{used_line}"
        )


@dataclass(frozen=True)
class ComparisonView:
    """A table of runs, and the sentences that say how to read it."""

    metric: str
    """The heading above the first metric."""
    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...]

    @classmethod
    def of_groups(cls, groups: Sequence[RunGroup]) -> ComparisonView:
        """Puts groups of runs into words, one row per group.

        Args:
            groups: What `group_runs` gives.

        Returns:
            The table with its notes.
        """
        metric = heading(group.figure.name for group in groups if group.figure)
        rows = tuple(_group_row(group, metric) for group in groups)
        return cls(metric, rows, tuple(notes(groups)))

    @classmethod
    def of_runs(cls, summaries: Sequence[Mapping[str, Any]]) -> ComparisonView:
        """Lists runs, one row per run.

        Args:
            summaries: What `run_summary.summary` gives.

        Returns:
            The table, without notes.
        """
        metric = heading(run.get("headline") or "accuracy" for run in summaries)
        return cls(metric, tuple(_run_row(run, metric) for run in summaries), ())


def heading(metrics: Iterable[str]) -> str:
    """Chooses the heading above the first metrics of several runs.

    Args:
        metrics: The name of each run's first metric.

    Returns:
        The name that all of them share, or "measured".
    """
    names = set(metrics) or {"accuracy"}
    return names.pop() if len(names) == 1 else MIXED_HEADING


def notes(groups: Sequence[RunGroup]) -> list[str]:
    """Says how to read a comparison: what ± is, and whether the rows are comparable at all.

    Args:
        groups: The rows.

    Returns:
        One sentence per note.
    """
    sentences = []
    if any(group.figure and group.figure.half is not None for group in groups):
        sentences.append(
            f"± is the {CONFIDENCE:.0%} interval of the mean over seeds (Student's t)."
        )
    if any(group.noisy for group in groups):
        sentences.append("Metrics that clients answered contain noise besides that of the seeds.")
    if len({group.worst["unit"] for group in groups} - {NO_UNIT, None}) > 1:
        sentences.append(
            "The units of privacy differ: an epsilon per sample and one per client cannot be "
            "compared."
        )
    proven = [group.worst["proven"] for group in groups]
    finite_epsilons = [epsilon for epsilon in proven if isinstance(epsilon, float)]
    has_unbounded = any(isinstance(epsilon, str) for epsilon in proven)
    if finite_epsilons and (
        has_unbounded or max(finite_epsilons) > (1 + ALIKE) * min(finite_epsilons)
    ):
        high = "unbounded" if has_unbounded else epsilon_text(max(finite_epsilons))
        sentences.append(
            f"Epsilons are not equal ({epsilon_text(min(finite_epsilons))} to {high}): only rows "
            "of equal epsilon are a fair comparison."
        )
    return sentences


def _group_row(group: RunGroup, heading_name: str) -> ComparisonRow:
    metric, count = group.figure, len(group.runs)
    measured_count = metric.count if metric else 0
    text = metric.text.removeprefix(metric.name).strip() if metric else "-"
    return _row(
        group.worst,
        label=group.label,
        seeds=str(count) if measured_count == count else f"{measured_count} of {count}",
        rounds=_span([run["rounds"] for run in group.runs]),
        metric=text if metric is None or metric.name == heading_name else f"{metric.name} {text}",
        ending="\n".join(sorted({ending_in_words(run["stopped_by"]) for run in group.runs})),
    )


def _run_row(run: Mapping[str, Any], heading_name: str) -> ComparisonRow:
    name = run.get("headline") or "accuracy"
    value = run.get("figure")
    if name == "accuracy" and value is None:
        value = run["accuracy"]
    text = metric_text(name, value) if name == heading_name else figure(name, value)
    return _row(
        run,
        label=f"{Path(run['run']).name}\n{run['algorithm'] or '-'}",
        seeds="1",
        rounds=_span([run["rounds"]]),
        metric="-" if value is None else f"{text}{' noisy' if run.get('noisy') else ''}",
        ending=ending_in_words(run["stopped_by"]),
    )


def _row(run: Mapping[str, Any], **cells: str) -> ComparisonRow:
    proven_epsilon, used_epsilon, guarantee = (
        run.get("proven"),
        run.get("used"),
        GuaranteeView.of(run),
    )
    is_bounded = isinstance(proven_epsilon, int | float)
    smaller = (
        is_bounded
        and isinstance(used_epsilon, int | float)
        and used_epsilon < float(proven_epsilon or 0.0)
    )
    return ComparisonRow(
        level=guarantee.level,
        proven=guarantee.proven,
        claimed=guarantee.claimed,
        unit=guarantee.unit,
        delta=guarantee.delta,
        accountant=str(run.get("accountant") or "-"),
        used=epsilon_text(used_epsilon) if smaller else "",
        **cells,
    )


def _span(values: Sequence[int | None]) -> str:
    """Writes one number, or the smallest and the largest of several."""
    numbers = sorted({value for value in values if value is not None})
    if not numbers:
        return "-"
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
