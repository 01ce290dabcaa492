"""Writes ratios with their spread as tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Measurement


@dataclass(frozen=True)
class Goal:
    """A bound on a figure."""

    text: str
    bound: float
    upper: bool

    def met(self, value: float) -> bool:
        """Tells whether a value is within the bound."""
        return value <= self.bound if self.upper else value >= self.bound


def at_most(bound: float) -> Goal:
    """Returns an upper bound."""
    return Goal(f"<= {bound:g}", bound, True)


def at_least(bound: float) -> Goal:
    """Returns a lower bound."""
    return Goal(f">= {bound:g}" if bound != 1.0 else "> 1", bound, False)


@dataclass(frozen=True)
class Line:
    """One figure of the table, with its median over repetitions and its spread."""

    row: int
    work: str
    what: str
    median: float | None
    low: float | None = None
    high: float | None = None
    goal: Goal | None = None
    unit: str = "x"
    note: str = ""

    @classmethod
    def of(
        cls,
        row: int,
        work: str,
        what: str,
        values: Sequence[float],
        goal: Goal | None = None,
        unit: str = "x",
        note: str = "",
    ) -> Line:
        """Returns a line with the median and the spread of some values."""
        return cls(
            row, work, what, statistics.median(values), min(values), max(values), goal, unit, note
        )

    @classmethod
    def ratio(
        cls,
        row: int,
        work: str,
        what: str,
        above: Measurement,
        below: Measurement,
        goal: Goal | None = None,
        of: str = "seconds",
        note: str = "",
    ) -> Line:
        """Returns the ratio by repetitions, so that what slows both does not count."""
        values = [a / b for a, b in zip(above.values(of), below.values(of), strict=False)]
        note = (
            note
            or f"{_time(above.median(of))} / "
            f"{_time(below.median(of))}{_setting(above)}{_setting(below)}"
        )
        return cls.of(row, work, what, values, goal, note=note)

    @property
    def verdict(self) -> str:
        """Whether the goal is met, in a word."""
        if self.median is None:
            return "not run"
        if self.goal is None:
            return ""
        return "yes" if self.goal.met(self.median) else "**no**"

    def cells(self) -> list[str]:
        """Returns the cells of the table."""
        figure = "" if self.median is None else f"{_figure(self.median)}{self.unit}"
        spread = (
            ""
            if self.low is None or self.high is None
            else f"{_figure(self.low)} - {_figure(self.high)}"
        )
        return [
            str(self.row),
            self.work,
            self.what,
            figure,
            spread,
            self.goal.text if self.goal else "",
            self.verdict,
            self.note,
        ]


def peer_over_ours(
    row: int, work: str, ours: Measurement, peer: Measurement, goal: Goal, of: str = "seconds"
) -> Line:
    """Returns the ratio of a peer's time to that of dpfl."""
    return Line.ratio(row, work, f"{peer.name} / {ours.name}", peer, ours, goal, of)


def unavailable(row: int, work: str, what: str, why: str) -> Line:
    """Returns a line for what did not run, with the reason."""
    return Line(row, work, what, None, note=why.strip().splitlines()[0] if why.strip() else "")


HEAD = ["row", "work", "compared", "median", "spread", "goal", "met", "times, best setting"]


def markdown(table: Sequence[Sequence[str]]) -> str:
    """Returns a table for RESULTS.md."""
    rows = [HEAD, ["---"] * len(HEAD), *table]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows
    )


def plain(lines: Sequence[Line]) -> str:
    """Returns a table for the terminal."""
    rows = [HEAD[:7], *(line.cells()[:7] for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _figure(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _setting(measurement: Measurement) -> str:
    setting_text = ", ".join(f"{key} {value}" for key, value in measurement.setting.items())
    return f"; {measurement.name}: {setting_text}" if setting_text else ""
