"""A table as run here: CSV for machines, Markdown with the paper's numbers beside ours for
people.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev

from dpfl.privacy.statement import rounded_up
from dpfl_papers.cells import Cell, Outcome, PaperTable
from dpfl_papers.runner import OutcomeStore

COLUMNS = (
    "group",
    "row",
    "column",
    "seed",
    "value",
    "printed",
    "paper_epsilon",
    "claimed",
    "proven",
    "unit",
    "terms",
    "steps",
    "rounds",
    "stopped_by",
    "sha256",
    "code",
    "digest",
)

SCALED = ".scaled"
"""After the name of a table's folder, so that one that was scaled lies beside the one that was
not.
"""

VALUES = "in brackets what the paper prints; ± is half of the 95 % interval of the mean over seeds."
COSTS = "Epsilon that the paper states; epsilon that is proven of what ran here; steps a client:"


@dataclass(frozen=True)
class FinishedCell:
    """A cell and what it came to, seed by seed."""

    cell: Cell
    seeds: tuple[int, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def values(self) -> list[float]:
        return [outcome.value for outcome in self.outcomes if outcome.value is not None]

    @property
    def mean(self) -> float:
        return mean(self.values) if self.values else math.nan

    @property
    def proven(self) -> float | str | None:
        """The largest of all seeds."""
        found = [outcome.proven for outcome in self.outcomes if outcome.proven is not None]
        return max(
            found,
            key=lambda epsilon: math.inf if isinstance(epsilon, str) else epsilon,
            default=None,
        )

    def text(self, digits: str = ".2f") -> str:
        return mean_text(self.values, digits) if self.values else "diverges"


def mean_text(values: Sequence[float], digits: str = ".2f") -> str:
    """With half of its 95 % interval, by Student's t, where there are several."""
    if len(values) < 2:
        return f"{mean(values):{digits}}"
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return f"{mean(values):{digits}} ± {half:{digits.removeprefix('+')}}"


def collect(table: PaperTable, seeds: Sequence[int], kept: OutcomeStore) -> list[FinishedCell]:
    """Cells that are done with one seed or more."""
    found = []
    for cell in table.cells:
        done = [
            (seed, outcome)
            for seed in seeds
            if (outcome := kept.get(cell.digest(seed))) is not None
        ]
        if done:
            found.append(
                FinishedCell(
                    cell, tuple(seed for seed, _ in done), tuple(outcome for _, outcome in done)
                )
            )
    return found


def write_csv(made: Sequence[FinishedCell], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for one in made:
            cell = one.cell
            for seed, outcome in zip(one.seeds, one.outcomes, strict=True):
                value = "diverged" if outcome.value is None else f"{outcome.value:.6g}"
                epsilons = (cell.claimed, outcome.claimed, outcome.proven)
                writer.writerow(
                    [
                        cell.group,
                        cell.row,
                        cell.column,
                        seed,
                        value,
                        _blank(cell.printed),
                        *map(_blank, epsilons),
                        outcome.unit,
                        outcome.terms,
                        outcome.steps,
                        outcome.rounds,
                        outcome.stopped_by,
                        outcome.sha256,
                        outcome.code,
                        cell.digest(seed),
                    ]
                )


def markdown(table: PaperTable, made: Sequence[FinishedCell], settings: Sequence[str]) -> str:
    lines = [f"# {table.title}", ""]
    lines += [f"**{scaled(settings)}**", ""] if settings else []
    lines += [f"Values are {table.value}; {VALUES}", ""]
    groups = list(dict.fromkeys(one.cell.group for one in made))
    for group in groups:
        mine = [one for one in made if one.cell.group == group]
        lines += [f"## {group}", ""] if group else []
        lines += [*_grid(mine, partial(_value, digits=digits(table))), ""]
        if any(one.outcomes[0].steps for one in mine):
            lines += [COSTS, "", *_grid(mine, _cost), "", *terms(mine), ""]
    lines += ["Where the paper leaves something open, or could not be followed:", ""]
    lines += [f"- {choice}" for choice in table.choices]
    return "\n".join(lines) + "\n"


def digits(table: PaperTable) -> str:
    return ".2f" if "%" in table.value else ".4g"


def scaled(settings: Sequence[str]) -> str:
    return f"Scaled, by {', '.join(f'`{setting}`' for setting in settings)}: not the paper's size."


def rows_of(made: Sequence[FinishedCell]) -> list[str]:
    """All rows, in the order of the longest column."""
    columns: dict[str, list[str]] = {}
    for one in made:
        columns.setdefault(f"{one.cell.group} {one.cell.column}", []).append(one.cell.row)
    return list(
        dict.fromkeys(
            row for column in sorted(columns.values(), key=len, reverse=True) for row in column
        )
    )


def terms(made: Sequence[FinishedCell]) -> list[str]:
    """Whom and what the proven epsilons are for: no bare epsilon anywhere."""
    rows: dict[str, list[str]] = {}
    for one in made:
        if said := one.outcomes[0].terms:
            rows.setdefault(said, []).append(one.cell.row)
    whose = {
        said: "" if len(rows) == 1 else f" ({'; '.join(dict.fromkeys(found))})"
        for said, found in rows.items()
    }
    return [f"Proven for {said}{who}." for said, who in whose.items()]


def _grid(made: Sequence[FinishedCell], text: Callable[[FinishedCell], str]) -> list[str]:
    rows = rows_of(made)
    columns = list(dict.fromkeys(one.cell.column for one in made))
    at = {(one.cell.row, one.cell.column): one for one in made}
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        cells = [text(at[row, column]) if (row, column) in at else "" for column in columns]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return lines


def _value(one: FinishedCell, digits: str) -> str:
    seeds = f" ({len(one.values)} seeds)" if len(one.values) > 1 else ""
    return f"{one.text(digits)}{seeds}{_printed(one.cell)}"


def _printed(cell: Cell) -> str:
    return "" if cell.printed is None else f" [{cell.printed:g}]"


def _cost(one: FinishedCell) -> str:
    first = one.outcomes[0]
    stated = "none" if one.cell.claimed is None else f"{one.cell.claimed:g}"
    return f"{stated}; {shown_epsilon(one.proven)}; {first.steps}"


def shown_epsilon(epsilon: float | str | None) -> str:
    """In a few digits, and never below the figure."""
    if epsilon is None:
        return "none"
    if isinstance(epsilon, str):
        return epsilon
    if epsilon < 1e4:
        return f"{rounded_up(epsilon, 3):.3f}"
    return f"{rounded_up(epsilon, 1 - int(math.log10(epsilon))):.2g}"


def _blank(value: object) -> object:
    return "" if value is None else value
