"""Ratios with their spread, as a table for people and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import Measured


@dataclass(frozen=True)
class Goal:
    text: str
    bound: float
    upper: bool

    def met(self, value: float) -> bool:
        return value <= self.bound if self.upper else value >= self.bound


def at_most(bound: float) -> Goal:
    return Goal(f"<= {bound:g}", bound, True)


def at_least(bound: float) -> Goal:
    return Goal(f">= {bound:g}" if bound != 1.0 else "> 1", bound, False)


@dataclass(frozen=True)
class Line:
    """One figure of the table: its median over repetitions and its spread."""

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
        return cls(
            row, work, what, statistics.median(values), min(values), max(values), goal, unit, note
        )

    @classmethod
    def ratio(
        cls,
        row: int,
        work: str,
        what: str,
        above: Measured,
        below: Measured,
        goal: Goal | None = None,
        of: str = "seconds",
        note: str = "",
    ) -> Line:
        """Repetition by repetition, so that what disturbed both does not count."""
        values = [a / b for a, b in zip(above.values(of), below.values(of), strict=False)]
        note = (
            note
            or f"{_time(above.median(of))} / "
            f"{_time(below.median(of))}{_setting(above)}{_setting(below)}"
        )
        return cls.of(row, work, what, values, goal, note=note)

    @property
    def verdict(self) -> str:
        if self.median is None:
            return "not run"
        if self.goal is None:
            return ""
        return "yes" if self.goal.met(self.median) else "**no**"

    def cells(self) -> list[str]:
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
    row: int, work: str, ours: Measured, peer: Measured, goal: Goal, of: str = "seconds"
) -> Line:
    return Line.ratio(row, work, f"{peer.name} / {ours.name}", peer, ours, goal, of)


def unavailable(row: int, work: str, what: str, why: str) -> Line:
    return Line(row, work, what, None, note=why.strip().splitlines()[0] if why.strip() else "")


HEAD = ["row", "work", "compared", "median", "spread", "goal", "met", "times, best setting"]


def markdown(table: Sequence[Sequence[str]]) -> str:
    rows = [HEAD, ["---"] * len(HEAD), *table]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows
    )


def plain(lines: Sequence[Line]) -> str:
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


def _setting(measured: Measured) -> str:
    chosen = ", ".join(f"{key} {value}" for key, value in measured.setting.items())
    return f"; {measured.name}: {chosen}" if chosen else ""
