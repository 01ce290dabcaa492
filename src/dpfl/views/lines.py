"""Runs as lines: those that differ by their seed alone are one, the mean over them with what the
seeds leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from dpfl.run.metrics import RoundRow
from dpfl.views.compare_groups import SeedMean, group_runs, mean_of
from dpfl.views.run_tables import RunTables

LONGEST = 36
"""Letters of a name in a legend."""

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


@dataclass(frozen=True)
class LinePoint:
    x: float
    y: float
    half: float | None
    """Of the interval of the mean over seeds; one seed has none."""


@dataclass(frozen=True)
class RunLines:
    """Runs with the same settings, under the label that tells them from the others."""

    label: str
    runs: tuple[RunTables, ...]

    def points(self, x: str, y: str) -> list[LinePoint]:
        """At the rounds at which all runs have both: of epsilon the largest, of all else the
        mean.
        """
        by_round = [found for run in self.runs if (found := _both(run.rows, x, y))]
        if not by_round:
            return []
        points = []
        for round in sorted(set.intersection(*map(set, by_round))):
            places, values = zip(*(found[round] for found in by_round), strict=True)
            mean, place = (
                mean_of(values),
                max(places) if x == "epsilon" else sum(places) / len(places),
            )
            assert isinstance(mean, SeedMean)
            points.append(LinePoint(place, mean.value, mean.half))
        return points


def _both(rows: Sequence[RoundRow], x: str, y: str) -> dict[int, tuple[float, float]]:
    """By round. Epsilon under way is a bound from above, and what was used by the end is one for
    every round before it.
    """
    most = rows[-1].epsilon if rows else None
    found = {}
    for row in rows:
        place, value = VALUES[x](row), VALUES[y](row)
        if place is not None and value is not None:
            found[row.round] = (
                min(place, most) if x == "epsilon" and most is not None else place,
                value,
            )
    return found


def lines_of(runs: Sequence[RunTables]) -> list[RunLines]:
    """One a group of runs that differ by their seed alone, in the order in which they were
    named.
    """
    if len(runs) == 1:
        return [RunLines(runs[0].name, tuple(runs))]
    by_path = {run.summary["run"]: run for run in runs}
    groups = group_runs(run.summary for run in runs)
    together = [tuple(by_path[run["run"]] for run in group.runs) for group in groups]
    return [RunLines(_label(same), same) for same in together]


def _label(runs: Sequence[RunTables]) -> str:
    """The name of a run; of several what their names begin with, or their system."""
    if len(runs) == 1:
        return shorten(runs[0].name)
    alike = takewhile(
        lambda letters: len(set(letters)) == 1, zip(*(run.name for run in runs), strict=False)
    )
    common = (
        "".join(letters[0] for letters in alike)
        .rstrip("-_. 0123456789")
        .removesuffix("seed")
        .rstrip("-_. ")
    )
    return f"{shorten(common or str(runs[0].summary['algorithm']))} ({len(runs)} seeds)"


def shorten(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[1 - LONGEST // 2 :]}"
