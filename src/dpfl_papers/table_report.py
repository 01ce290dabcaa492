"""A table as it was run here: CSV for programs, and Markdown with the paper's numbers beside ours
for readers.
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

SCALED_SUFFIX = ".scaled"
"""After the name of a table's folder, so that one that was scaled lies beside the one that was
not.
"""

VALUES = (
    "the number that the paper prints is in brackets. "
    "± is half of the 95 % interval of the mean over seeds."
)
COSTS = "Epsilon that the paper states; epsilon that is proven of the run; steps per client:"


@dataclass(frozen=True)
class FinishedCell:
    """A cell and its outcomes.

    Attributes:
        cell: The cell.
        seeds: Seeds with which it was run.
        outcomes: The outcome of each of these seeds.
    """

    cell: Cell
    seeds: tuple[int, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def values(self) -> list[float]:
        """The numbers of the seeds with which training did not diverge."""
        return [outcome.value for outcome in self.outcomes if outcome.value is not None]

    @property
    def mean(self) -> float:
        """The mean of `values`; NaN if every seed diverged."""
        return mean(self.values) if self.values else math.nan

    @property
    def proven(self) -> float | str | None:
        """The largest proven epsilon of all seeds."""
        epsilons = [outcome.proven for outcome in self.outcomes if outcome.proven is not None]
        return max(
            epsilons,
            key=lambda epsilon: math.inf if isinstance(epsilon, str) else epsilon,
            default=None,
        )

    def text(self, digits: str = ".2f") -> str:
        """Words the numbers.

        Args:
            digits: Format of a number.

        Returns:
            The mean with its interval, or "diverges".
        """
        return mean_text(self.values, digits) if self.values else "diverges"


def mean_text(values: Sequence[float], digits: str = ".2f") -> str:
    """Words the mean of some numbers.

    Args:
        values: One number per seed, one at least.
        digits: Format of a number.

    Returns:
        The mean. If there are several numbers, half of the 95 % interval of the mean by Student's t
        follows.
    """
    if len(values) < 2:
        return f"{mean(values):{digits}}"
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return f"{mean(values):{digits}} ± {half:{digits.removeprefix('+')}}"


def collect(table: PaperTable, seeds: Sequence[int], store: OutcomeStore) -> list[FinishedCell]:
    """Reads the finished cells of a table.

    Args:
        table: The table.
        seeds: Seeds to look for.
        store: Where outcomes are stored.

    Returns:
        The cells that are finished with at least one seed.
    """
    results = []
    for cell in table.cells:
        outcomes = [
            (seed, outcome)
            for seed in seeds
            if (outcome := store.get(cell.digest(seed))) is not None
        ]
        if outcomes:
            results.append(
                FinishedCell(
                    cell,
                    tuple(seed for seed, _ in outcomes),
                    tuple(outcome for _, outcome in outcomes),
                )
            )
    return results


def write_csv(results: Sequence[FinishedCell], path: Path) -> None:
    """Writes one line per cell and seed.

    Args:
        results: Finished cells.
        path: The CSV file to write.
    """
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for result in results:
            cell = result.cell
            for seed, outcome in zip(result.seeds, result.outcomes, strict=True):
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


def markdown(table: PaperTable, results: Sequence[FinishedCell], settings: Sequence[str]) -> str:
    """Writes a table with the paper's numbers beside ours.

    Args:
        table: The table.
        results: Its finished cells.
        settings: Settings by which it was scaled.

    Returns:
        A Markdown page.
    """
    lines = [f"# {table.title}", ""]
    lines += [f"**{scale_note(settings)}**", ""] if settings else []
    lines += [f"Values are {table.value}; {VALUES}", ""]
    groups = list(dict.fromkeys(result.cell.group for result in results))
    for group in groups:
        mine = [result for result in results if result.cell.group == group]
        lines += [f"## {group}", ""] if group else []
        lines += [*_grid(mine, partial(_value, digits=digits(table))), ""]
        if any(result.outcomes[0].steps for result in mine):
            lines += [COSTS, "", *_grid(mine, _cost), "", *terms(mine), ""]
    lines += ["Where the paper leaves something open, or could not be followed:", ""]
    lines += [f"- {choice}" for choice in table.choices]
    return "\n".join(lines) + "\n"


def digits(table: PaperTable) -> str:
    """Chooses the format of a table's numbers.

    Args:
        table: The table.

    Returns:
        Two decimals for percentages, and four significant digits for others.
    """
    return ".2f" if "%" in table.value else ".4g"


def scale_note(settings: Sequence[str]) -> str:
    """Says that a table was scaled.

    Args:
        settings: The settings that were applied.

    Returns:
        One sentence.
    """
    return f"Scaled, by {', '.join(f'`{setting}`' for setting in settings)}: not the paper's size."


def rows_of(results: Sequence[FinishedCell]) -> list[str]:
    """Lists the rows of a table.

    Args:
        results: Finished cells.

    Returns:
        Every row once, in the order of the longest column.
    """
    columns: dict[str, list[str]] = {}
    for result in results:
        columns.setdefault(f"{result.cell.group} {result.cell.column}", []).append(result.cell.row)
    return list(
        dict.fromkeys(
            row for column in sorted(columns.values(), key=len, reverse=True) for row in column
        )
    )


def terms(results: Sequence[FinishedCell]) -> list[str]:
    """Says what the proven epsilons guarantee, so that no epsilon stands alone.

    Args:
        results: Finished cells.

    Returns:
        One sentence per unit, neighbours, delta and accountant. It names the rows if there are
        several.
    """
    rows: dict[str, list[str]] = {}
    for result in results:
        if words := result.outcomes[0].terms:
            rows.setdefault(words, []).append(result.cell.row)
    who = {
        words: "" if len(rows) == 1 else f" ({'; '.join(dict.fromkeys(places))})"
        for words, places in rows.items()
    }
    return [f"Proven for {words}{who}." for words, who in who.items()]


def _grid(results: Sequence[FinishedCell], text: Callable[[FinishedCell], str]) -> list[str]:
    rows = rows_of(results)
    columns = list(dict.fromkeys(result.cell.column for result in results))
    at = {(result.cell.row, result.cell.column): result for result in results}
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        cells = [text(at[row, column]) if (row, column) in at else "" for column in columns]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return lines


def _value(result: FinishedCell, digits: str) -> str:
    seeds = f" ({len(result.values)} seeds)" if len(result.values) > 1 else ""
    return f"{result.text(digits)}{seeds}{_printed_text(result.cell)}"


def _printed_text(cell: Cell) -> str:
    return "" if cell.printed is None else f" [{cell.printed:g}]"


def _cost(result: FinishedCell) -> str:
    first = result.outcomes[0]
    claim_text = "none" if result.cell.claimed is None else f"{result.cell.claimed:g}"
    return f"{claim_text}; {shown_epsilon(result.proven)}; {first.steps}"


def shown_epsilon(epsilon: float | str | None) -> str:
    """Writes an epsilon in a few digits.

    Args:
        epsilon: A number, a word such as "unbounded", or None.

    Returns:
        The number rounded up, so that it is never below the figure; the word; or "none".
    """
    if epsilon is None:
        return "none"
    if isinstance(epsilon, str):
        return epsilon
    if epsilon < 1e4:
        return f"{rounded_up(epsilon, 3):.3f}"
    return f"{rounded_up(epsilon, 1 - int(math.log10(epsilon))):.2g}"


def _blank(value: object) -> object:
    return "" if value is None else value
