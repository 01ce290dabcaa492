"""Runs as lines: runs that differ only by their seed are one line, their mean with its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from dpfl.run.metrics import RoundRow
from dpfl.views.compare_groups import SeedMean, group_runs, mean_of
from dpfl.views.run_tables import RunTables

LONGEST = 36
"""The most characters of a name in a legend."""

Value = Callable[[RoundRow], float | None]

VALUES: dict[str, Value] = {
    "headline": lambda row: row.measured,
    "loss": lambda row: row.loss,
    "tau": lambda row: row.steps,
    "rounds": lambda row: row.round,
    "epsilon": lambda row: row.epsilon,
    "bytes": lambda row: row.bytes,
    "seconds": lambda row: row.seconds,
}
"""What a figure may show of a round, by name."""


@dataclass(frozen=True)
class LinePoint:
    """One point of a line."""

    x: float
    y: float
    half: float | None
    """Half of the interval of the mean over seeds; None for a single seed."""


@dataclass(frozen=True)
class RunLines:
    """Runs with the same settings."""

    label: str
    """What tells the line from the others."""
    runs: tuple[RunTables, ...]

    def points(self, x: str, y: str) -> list[LinePoint]:
        """Takes the mean over the runs at the rounds that all of them have.

        Args:
            x: The horizontal quantity, one of `VALUES`. Of epsilon the largest is taken, since it
                is an upper bound; of all else the mean.
            y: The vertical quantity, one of `VALUES`.

        Returns:
            The points by round.
        """
        by_run = [pairs for run in self.runs if (pairs := _pairs(run.rows, x, y))]
        if not by_run:
            return []
        points = []
        for round in sorted(set.intersection(*map(set, by_run))):
            places, values = zip(*(pairs[round] for pairs in by_run), strict=True)
            mean = mean_of(values)
            assert isinstance(mean, SeedMean)
            place = max(places) if x == "epsilon" else sum(places) / len(places)
            points.append(LinePoint(place, mean.value, mean.half))
        return points


def lines_of(runs: Sequence[RunTables]) -> list[RunLines]:
    """Makes one line per group of runs that differ only by their seed.

    Args:
        runs: The runs.

    Returns:
        Lines in the order in which their runs were named.
    """
    if len(runs) == 1:
        return [RunLines(runs[0].name, tuple(runs))]
    by_path = {run.summary["run"]: run for run in runs}
    groups = group_runs(run.summary for run in runs)
    members = [tuple(by_path[run["run"]] for run in group.runs) for group in groups]
    return [RunLines(_label(same), same) for same in members]


def shorten(name: str) -> str:
    """Shortens a name for a legend.

    Args:
        name: A name of any length.

    Returns:
        Its two ends, if it is too long.
    """
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[1 - LONGEST // 2 :]}"


def _pairs(rows: Sequence[RoundRow], x: str, y: str) -> dict[int, tuple[float, float]]:
    """Lists both quantities by round.

    The epsilon recorded in a round is an upper bound. The epsilon at the end of the run also bounds
    every earlier round, so the smaller of both is taken.
    """
    end = rows[-1].epsilon if rows else None
    pairs = {}
    for row in rows:
        place, value = VALUES[x](row), VALUES[y](row)
        if place is None or value is None:
            continue
        if x == "epsilon" and end is not None:
            place = min(place, end)
        pairs[row.round] = (place, value)
    return pairs


def _label(runs: Sequence[RunTables]) -> str:
    """Names a line: by its run, or by the common beginning of several names, or by the system."""
    if len(runs) == 1:
        return shorten(runs[0].name)
    letters = zip(*(run.name for run in runs), strict=False)
    shared_columns = takewhile(lambda column: len(set(column)) == 1, letters)
    prefix = "".join(column[0] for column in shared_columns)
    common = prefix.rstrip("-_. 0123456789").removesuffix("seed").rstrip("-_. ")
    return f"{shorten(common or str(runs[0].summary['algorithm']))} ({len(runs)} seeds)"
