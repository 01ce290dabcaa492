"""Runs from Python: a folder of them as a table, and some of them side by side over their seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.dataframe import ColumnTable
from dpfl.errors import DpflError
from dpfl.notebook_repr import NotebookView
from dpfl.run.folder import RunFolder
from dpfl.views.compare_groups import RunGroup, group_runs, notes
from dpfl.views.curves import draw_groups
from dpfl.views.html import card, columns, note, table
from dpfl.views.terminal import guarantee, measured_by, summary, word

if TYPE_CHECKING:
    from dpfl.run.result import Result
    from dpfl.views.notebook import NotebookFigure

HIDDEN = ("settings", "model_sha256")
"""Of a run's line: too long for a table, and kept in `.summaries`."""


@dataclass(frozen=True)
class RunList(ColumnTable, Sequence[Path]):
    """The folders of runs; as a table, what each came to. A run that is under way has empty
    fields.
    """

    summaries: tuple[Mapping[str, Any], ...]

    def columns(self) -> Mapping[str, Sequence[Any]]:
        names = [
            name for name in (self.summaries[0] if self.summaries else ()) if name not in HIDDEN
        ]
        return {name: [_number(name, run[name]) for run in self.summaries] for name in names}

    def __len__(self) -> int:
        return len(self.summaries)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return RunList(self.summaries[place])
        return Path(self.summaries[place]["run"])

    def __iter__(self) -> Iterator[Path]:
        return (Path(run["run"]) for run in self.summaries)

    def __repr__(self) -> str:
        return (
            f"Runs({', '.join(path.name for path in self)})"
            if len(self) <= 5
            else f"Runs({len(self)} runs)"
        )

    def _repr_html_(self) -> str:
        return columns(self.columns()) if self.summaries else note("no runs")


def _number(name: str, value: Any) -> Any:
    """Epsilons as numbers, infinity where none is proven, so that a column has one type."""
    return (
        (math.inf if isinstance(value, str) else value)
        if name in ("proven", "claimed", "used")
        else value
    )


@dataclass(frozen=True)
class Comparison(ColumnTable, NotebookView, shown_by="comparison"):
    """Groups of runs that differ by their seed alone, each with its mean and the interval of it."""

    groups: tuple[RunGroup, ...]

    @property
    def notes(self) -> list[str]:
        """What ± is, and whether the rows may be compared at all."""
        return notes(self.groups)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """A row a group: mean and ends of the interval (empty for one seed), the largest epsilon
        that is proven, its unit.
        """
        rows = [_row(group) for group in self.groups]
        return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}

    def to_dict(self) -> list[dict[str, Any]]:
        """As `dpfl compare --json` prints it."""
        return [group.to_dict() for group in self.groups]

    def __repr__(self) -> str:
        told = [
            f"{group.label}: {group.figure.text if group.figure else 'not measured'}"
            for group in self.groups
        ]
        return f"Comparison({'; '.join(told)})"


def _row(group: RunGroup) -> dict[str, Any]:
    figure, worst = group.figure, group.worst
    ends = figure.to_dict() if figure else {"mean": None, "low": None, "high": None}
    measured = {name: ends[name] for name in ("mean", "low", "high")} | {
        "metric": figure.name if figure else None
    }
    bound = {name: worst[name] for name in ("unit", "delta", "accountant")}
    return (
        {"label": group.label, "runs": len(group.runs)}
        | measured
        | {"proven": _number("proven", worst["proven"])}
        | bound
    )


def html(comparison: Comparison) -> str:
    names = {group.figure.name for group in comparison.groups if group.figure} or {"accuracy"}
    head = ("system and what differs", "seeds", measured_by(names), "epsilon proven", "ended by")
    rows = []
    for group in comparison.groups:
        told = (
            group.figure.text.removeprefix(group.figure.name if len(names) == 1 else "").strip()
            if group.figure
            else "-"
        )
        ended = "\n".join(sorted({word(run["stopped_by"]) for run in group.runs}))
        rows.append((group.label, len(group.runs), told, guarantee(group.worst), ended))
    return card("runs side by side", table(head, rows, most=60), *map(note, comparison.notes))


def plot(comparison: Comparison) -> NotebookFigure:
    return draw_groups(comparison.groups)


def runs(root: PathLike[str] | str = "runs") -> RunList:
    """The runs of a folder, under way and ended, by name."""
    place = Path(root)
    if not place.is_dir():
        raise DpflError(f"There is no folder {place} with runs; name the one that holds them.")
    return RunList(
        tuple(summary(RunFolder(file.parent)) for file in sorted(place.glob("*/experiment.toml")))
    )


def compare(
    *of: Result | PathLike[str] | str | Iterable[Result | PathLike[str] | str],
) -> Comparison:
    """Runs side by side, as results, as folders, or as `dpfl.runs(...)`.

    Those that differ by their seed alone are one row, with the mean over seeds and its 95 %
    interval (Student's t).
    """
    folders = list(_folders(of))
    if not folders:
        raise DpflError("There is nothing to compare: give results, or folders of runs.")
    return Comparison(tuple(group_runs(summary(RunFolder.open(folder)) for folder in folders)))


def _folders(of: Iterable[Any]) -> Iterator[Path]:
    for one in of:
        if isinstance(one, str | PathLike):
            yield Path(one)
        elif hasattr(one, "folder"):
            yield Path(one.folder)
        elif isinstance(one, Iterable):
            yield from _folders(one)
        else:
            raise DpflError(f"A run is a result or the folder of one, not a {type(one).__name__}.")
