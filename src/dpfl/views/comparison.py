"""Runs from Python: the runs of a folder as a table, and some of them side by side."""

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
from dpfl.run.records.folder import RunFolder
from dpfl.views.compare_groups import RunGroup, group_runs
from dpfl.views.comparison_view import ComparisonView
from dpfl.views.notebook.html import columns, note
from dpfl.views.run_summary import summary

if TYPE_CHECKING:
    from dpfl.run.result import Result

LONG_ENTRIES = ("settings", "model_sha256")
"""Entries of a summary that are too long for a table. They are in `summaries`."""


@dataclass(frozen=True)
class RunList(ColumnTable, Sequence[Path]):
    """The folders of runs; as a table, the outcome of each run. A run under way has empty cells."""

    summaries: tuple[Mapping[str, Any], ...]
    """What `run_summary.summary` gives, one per run."""

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Lists the table by column.

        Returns:
            Values by the name of their column, one per run.
        """
        first = self.summaries[0] if self.summaries else {}
        names = [name for name in first if name not in LONG_ENTRIES]
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
        names = ", ".join(path.name for path in self)
        return f"RunList({names})" if len(self) <= 5 else f"RunList({len(self)} runs)"

    def _repr_html_(self) -> str:
        return columns(self.columns()) if self.summaries else note("There are no runs.")


@dataclass(frozen=True)
class Comparison(ColumnTable, NotebookView, shown_by="comparison_page"):
    """Groups of runs that differ only by their seed, each with its mean and the interval of it."""

    groups: tuple[RunGroup, ...]

    @property
    def view(self) -> ComparisonView:
        """The comparison in words."""
        return ComparisonView.of_groups(self.groups)

    @property
    def notes(self) -> list[str]:
        """What ± is, and whether the rows are comparable at all."""
        return list(self.view.notes)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Lists the table by column.

        Returns:
            One row per group: the mean and the ends of its interval (empty for one seed), the
            largest proven epsilon and what it is for.
        """
        rows = [_row(group) for group in self.groups]
        return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}

    def to_dict(self) -> list[dict[str, Any]]:
        """Writes the comparison as `dpfl compare --json` prints it.

        Returns:
            One entry per group.
        """
        return [group.to_dict() for group in self.groups]

    def __repr__(self) -> str:
        texts = [
            f"{group.label}: {group.figure.text if group.figure else 'not measured'}"
            for group in self.groups
        ]
        return f"Comparison({'; '.join(texts)})"


def runs(root: PathLike[str] | str = "runs") -> RunList:
    """Lists the runs of a folder, finished or under way.

    Args:
        root: The folder that holds the folders of the runs.

    Returns:
        The runs by name.

    Raises:
        DpflError: If there is no such folder.

    Example:
        dpfl.runs("runs").to_pandas()
    """
    place = Path(root)
    if not place.is_dir():
        raise DpflError(f"There is no folder {place}. Name the folder that holds the runs.")
    files = sorted(place.glob("*/experiment.toml"))
    return RunList(tuple(summary(RunFolder(file.parent)) for file in files))


def compare(
    *of: Result | PathLike[str] | str | Iterable[Result | PathLike[str] | str],
) -> Comparison:
    """Puts runs side by side.

    Runs that differ only by their seed are one row, with their mean and its 95 % interval
    (Student's t).

    Args:
        of: Results, folders of runs, or collections of them such as `dpfl.runs(...)`.

    Returns:
        The comparison.

    Raises:
        DpflError: If there is nothing to compare, or a folder holds no run.

    Example:
        dpfl.compare("runs/a", "runs/b").plot()
    """
    folders = list(_folders(of))
    if not folders:
        raise DpflError("There is nothing to compare. Give results, or folders of runs.")
    return Comparison(tuple(group_runs(summary(RunFolder.open(folder)) for folder in folders)))


def _row(group: RunGroup) -> dict[str, Any]:
    figure, worst = group.figure, group.worst
    ends = figure.to_dict() if figure else {"mean": None, "low": None, "high": None}
    return {
        "label": group.label,
        "runs": len(group.runs),
        **{name: ends[name] for name in ("mean", "low", "high")},
        "metric": figure.name if figure else None,
        "proven": _number("proven", worst["proven"]),
        **{name: worst[name] for name in ("unit", "delta", "accountant")},
    }


def _number(name: str, value: Any) -> Any:
    """Converts epsilons to numbers, infinity if none is proven, so that a column has one type."""
    if name in ("proven", "claimed", "used") and isinstance(value, str):
        return math.inf
    return value


def _folders(of: Iterable[Any]) -> Iterator[Path]:
    for item in of:
        if isinstance(item, str | PathLike):
            yield Path(item)
        elif hasattr(item, "folder"):
            yield Path(item.folder)
        elif isinstance(item, Iterable):
            yield from _folders(item)
        else:
            raise DpflError(f"Give results or folders of runs, not a {type(item).__name__}.")
