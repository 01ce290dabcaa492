"""Reads one stored number of a paper's table over its seeds, and writes its line."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dpfl_papers import Cell, PaperTable, tables
from dpfl_papers.table_report import SCALED_SUFFIX, digits, mean_text, shown_epsilon

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.results_state import RESULTS, SEEDS, scale_settings, stored_rows

BAR = "\\|"
ADAPTIVE = ("ali-dpfl", "als-dpfl")
"""Systems that choose their steps from released values."""

USED_MARK = "used"
USUAL = "one sample, add/remove one, delta 1e-05, by pld"
"""The terms of a proven epsilon, unless a row has others."""

NOTHING, NOT_RUN, NOT_RECORDED = "none", "not run", "not recorded"


def verdicts(folder: Path = RESULTS) -> dict[str, Any]:
    """Reads the words of the pages."""
    return tomllib.loads((folder / "verdicts.toml").read_text())


@cache
def versions() -> dict[str, dict[str, Any]]:
    """Reads the versions of the code, by the digest that cells record."""
    return {
        one["code"]: one
        for one in tomllib.loads((RESULTS / "versions.toml").read_text())["version"]
    }


def paper_of(table: PaperTable) -> tuple[str, str]:
    """Returns the paper of a table and the name of the table in it."""
    paper, _, what = table.title.partition(", ")
    if ":" in paper:  # a table of our own, which no paper prints
        paper, _, what = table.title.partition(": ")
    return paper, what


@dataclass(frozen=True)
class StoredResult:
    """A stored number over its seeds: a cell and its rows of results.csv."""

    table: PaperTable
    cell: Cell
    rows: Sequence[dict[str, str]]
    scaled: bool = False

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError(f"{self.table.name} has no stored cell {self.cell.place}.")

    @property
    def place(self) -> str:
        """The name of its folder."""
        return f"{self.table.name}{SCALED_SUFFIX * self.scaled}"

    @property
    def what(self) -> str:
        """The table or figure, the row and the column."""
        name = paper_of(self.table)[1].partition(":")[0]
        return f"[{name}]({self.place}/table.md), {self.cell.row}, {self.cell.column}"

    @property
    def setting(self) -> str:
        """The data set and the model."""
        model = self.cell.work.content.get("model")
        return (
            ", ".join(filter(None, (self.cell.group, model and f"`{model['name']}`")))
            or "closed form"
        )

    @property
    def scale(self) -> str:
        """Clients, rounds and steps per client."""
        content = self.cell.work.content
        if "model" not in content:
            return NOTHING
        cohort, clients = content["algorithm"].get("cohort"), content["data"]["clients"]
        who = f"{cohort} of {clients:,} clients" if cohort else f"{clients:,} clients"
        suffix = ", scaled" if self.scaled else ""
        return f"{who}, {self._range('rounds')} rounds, {self._range('steps')} steps{suffix}"

    def _range(self, column: str) -> str:
        numbers = sorted({int(row[column]) for row in self.rows})
        return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"

    @property
    def printed(self) -> str:
        """The number that the paper prints."""
        return NOTHING if self.cell.printed is None else f"{self.cell.printed:g}"

    @property
    def ours(self) -> str:
        """The mean over seeds."""
        values = [float(row["value"]) for row in self.rows if row["value"] != "diverged"]
        return mean_text(values, digits(self.table)) if values else "diverges"

    @property
    def claimed(self) -> str:
        """The epsilon that the paper claims."""
        return NOTHING if self.cell.claimed is None else f"{self.cell.claimed:,g}"

    @property
    def proven(self) -> str:
        """The largest proven epsilon of all seeds.

        Marks name other terms than usual, and an epsilon that holds only for the steps that ran.
        """
        values = [row["proven"] for row in self.rows]
        if "unbounded" in values:
            return "unbounded"
        if not all(values):
            return NOTHING
        marks = [USED_MARK] if self._used else []
        marks += sorted(
            {row["terms"].removesuffix(", delta 1e-05, by pld") for row in self.rows}
            - {USUAL.partition(", delta")[0]}
        )
        return ", ".join((shown_epsilon(max(map(float, values))), *marks))

    @property
    def _used(self) -> bool:
        adaptive = self.cell.work.content["algorithm"]["name"] in ADAPTIVE
        return adaptive and any(
            versions()[row["code"]]["adaptive"] == USED_MARK for row in self.rows
        )

    @property
    def version(self) -> str:
        """The code and the day of all seeds."""
        return version_text(self.rows)

    def line(self, note: str = "") -> str:
        """Returns the line of README.md."""
        proven = f"{self.proven}, {note}" if note else self.proven
        return table_line(
            self.what,
            self.setting,
            command_of(self.table),
            self.scale,
            str(len(self.rows)),
            self.printed,
            self.ours,
            self.claimed,
            proven,
            self.version,
        )


def version_text(rows: Sequence[dict[str, str]]) -> str:
    """Returns the code and the day of some rows."""
    used_versions = [
        one for one in versions().values() if one["code"] in {row["code"] for row in rows}
    ]
    codes = ", ".join(
        f"`{one['code'][:7]}`" if one["code"] else NOT_RECORDED for one in used_versions
    )
    days = sorted({f"{one['stored']}" for one in used_versions})
    return f"{codes}; {days[0]}" if len(days) == 1 else f"{codes}; {days[0]} to {days[-1]}"


def command_of(table: PaperTable) -> str:
    """Returns the command that runs a table."""
    return f"`dpfl reproduce {table.name}`"


def result_of(
    table: PaperTable, where: Sequence[str], folder: Path = RESULTS, scaled: bool = False
) -> StoredResult:
    """Reads the stored cell at a group, row and column."""
    place = folder / f"{table.name}{SCALED_SUFFIX * scaled}"
    cells = table.with_settings(scale_settings(place / "table.md")).cells
    cell = next((one for one in cells if [one.group, one.row, one.column] == list(where)), None)
    if cell is None:
        raise ValueError(f"{table.name} has no cell {', '.join(where)}.")
    digests = {cell.digest(seed) for seed in range(SEEDS)}
    own = [
        row
        for row in stored_rows(place / "results.csv")
        if [row["group"], row["row"], row["column"]] == list(where)
    ]
    return StoredResult(table, cell, [row for row in own if row["digest"] in digests], scaled)


def results(folder: Path = RESULTS) -> Iterator[tuple[StoredResult, str]]:
    """Yields the results of README.md, with the note on the proven epsilon if there is one."""
    choice, paper_tables = verdicts(folder)["shown"], tables()
    for name in paper_tables:
        for at_scale in (False, True):
            for group, row, column, *note in choice.get(f"{name}{SCALED_SUFFIX * at_scale}", ()):
                yield (
                    result_of(paper_tables[name], (group, row, column), folder, at_scale),
                    "".join(note),
                )


def table_head(names: Sequence[str]) -> tuple[str, str]:
    """Returns the first two lines of a table."""
    return table_line(*names), "|---" * len(names) + "|"


def table_line(*cells: str) -> str:
    """Returns one line of a table."""
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"
