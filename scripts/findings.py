"""Prints the comparisons of the pages docs/results/ali-dpfl.md and auto.md, from the cells that
`dpfl reproduce` stored.

python scripts/findings.py reproduced
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from dpfl_papers import Outcome, PaperTable, tables
from dpfl_papers.ali import OWN
from dpfl_papers.runner import OutcomeStore
from dpfl_papers.table_report import FinishedCell, collect, mean_text, shown_epsilon

SEEDS = range(3)
SAME, WHOLE = "auto, same proven epsilon", "auto, the column's epsilon"
FIXED_TAUS = tuple(f"tau = {tau}" for tau in (1, 2, 3, 5, 10))
TABLES = ("ali-2", "ali-3", "ali-4")
WIDE = {"ali-2-wide": 158, "ali-3-wide": 317}
"""Tables of the authors' network with results, and their rounds."""
ADAPTIVE_TABLES = ("ali-2-wide", "ali-3-wide", "als-2", "als-3")
ADAPTIVE = {"ALI-DPFL": "ALI-DPFL, sound", "ALI-DPFL, published": "ALI-DPFL, published"}
TAU_ROUNDS = (1, 2, 3, 5, 10, 20, 50, 100, 200)
"""Rounds whose tau the tables show."""


def main(folder: str) -> None:
    """Prints every comparison."""
    paper_tables = tables()
    cells = {
        name: collect(paper_tables[name], SEEDS, OutcomeStore(Path(folder))) for name in TABLES
    }
    print("## auto against every method, and against what is printed\n")
    heads = (
        "data",
        "rounds",
        "column",
        "best method as re-run, seed 0",
        "auto, same proven",
        "ahead by",
        "auto, the column's",
    )
    print("| " + " | ".join((*heads, "best printed")) + " |")
    print("|---" * 8 + "|")
    for name in TABLES:
        for line in against_all(cells[name], paper_tables[name]):
            print(line)
    print(
        "\n## ALI-DPFL against fixed tau where rounds are short, `cnn`: differences over the same "
        "seeds\n"
    )
    print("| data | column | | " + " | ".join(f"against {tau}" for tau in FIXED_TAUS) + " |")
    print("|---" * (3 + len(FIXED_TAUS)) + "|")
    for name in TABLES:
        for line in against_fixed(cells[name]):
            print(line)
    print("\n## The authors' network\n")
    short = short_rounds(
        {name: collect(paper_tables[name], SEEDS, OutcomeStore(Path(folder))) for name in WIDE}
    )
    for line in (*levels(short), "", *differences(short)):
        print(line)
    for name in ADAPTIVE_TABLES:
        for line in course(
            paper_tables[name], collect(paper_tables[name], SEEDS, OutcomeStore(Path(folder)))
        ):
            print(line)
    print("\n## Which reading comes to a printed level\n")
    for one in sorted(
        collect(paper_tables["ali-levels"], SEEDS, OutcomeStore(Path(folder))),
        key=lambda one: -one.mean,
    ):
        print(f"| {one.cell.row} | {one.text()} | {one.cell.printed:g} |")


def columns(cells: list[FinishedCell]) -> Iterator[tuple[str, str, dict[str, FinishedCell]]]:
    """Yields each group and column with its cells by row."""
    for group, column in dict.fromkeys((one.cell.group, one.cell.column) for one in cells):
        yield (
            group,
            column,
            {
                one.cell.row: one
                for one in cells
                if (one.cell.group, one.cell.column) == (group, column)
            },
        )


def against_all(cells: list[FinishedCell], table: PaperTable) -> Iterator[str]:
    """Yields lines that compare `auto` with the best other method and the best printed value."""
    for group, column, rows in columns(cells):
        if SAME not in rows:
            continue
        unit = rows[SAME].outcomes[0].unit
        theirs = {
            row: one
            for row, one in rows.items()
            if not row.startswith("auto") and one.outcomes[0].unit == unit
        }
        if not theirs:
            continue
        first = {row: one.values[0] for row, one in theirs.items()}
        best = max(first, key=lambda row: first[row])
        there = [cell for cell in table.cells if (cell.group, cell.column) == (group, column)]
        printed = {cell.row: cell.printed for cell in there if cell.printed is not None}
        top = max(printed, key=lambda row: printed[row])
        ours = f"{rows[SAME].text()} (eps {rows[SAME].outcomes[0].proven:.3f})"
        whole = rows[WHOLE].text() if WHOLE in rows else ""
        rounds = rows[SAME].cell.work.content["budget"]["rounds"]
        best_printed = f"{printed[top]:g} ({top}); ALI {printed['ALI-DPFL']:g}"
        ahead = difference(rows[SAME], theirs[best])
        yield (
            f"| {group} | {rounds} | {column} | {first[best]:.2f} ({best}) | {ours} | {ahead} | "
            f"{whole} | {best_printed} |"
        )


def against_fixed(cells: list[FinishedCell]) -> Iterator[str]:
    """Yields lines that compare adaptive tau with every fixed tau, where rounds are short."""
    for group, column, rows in columns(cells):
        if "R_c /" not in column:
            continue
        for ours in ("ALI-DPFL", *OWN):
            if ours in rows and any(tau in rows for tau in FIXED_TAUS):
                apart = [
                    difference(rows[ours], rows[tau]) if tau in rows else "" for tau in FIXED_TAUS
                ]
                yield f"| {group} | {column} | {ours} | " + " | ".join(apart) + " |"


Short = dict[tuple[str, str, str], dict[str, FinishedCell]]
"""The rows of a column, by data, rounds and R_s as a share of R_c, where R_s is less."""


def short_rounds(cells: dict[str, list[FinishedCell]]) -> Short:
    """Returns the columns of the authors' network where rounds are short."""
    short = {
        (group, str(WIDE[name]), column.removeprefix("R_s = ")): rows
        for name in cells
        for group, column, rows in columns(cells[name])
        if "R_c /" in column
    }
    return dict(sorted(short.items(), key=lambda item: item[0][0] != "MNIST"))


def levels(short: Short) -> Iterator[str]:
    """Yields a table of accuracies, with fixed and with adaptive tau."""
    yield (
        "| `cnn-wide` | "
        + " | ".join(f"{group}, {rounds} rounds, {column}" for group, rounds, column in short)
        + " |"
    )
    yield "|---" * (1 + len(short)) + "|"
    for row in (*FIXED_TAUS[:4], *ADAPTIVE):
        cells = [rows.get(row) for rows in short.values()]
        yield (
            f"| {ADAPTIVE.get(row, row)} | "
            + " | ".join(one.text() + printed_note(one) if one else "" for one in cells)
            + " |"
        )


def differences(short: Short) -> Iterator[str]:
    """Yields a table of the differences between adaptive and fixed tau."""
    yield "| data | column | | " + " | ".join(f"against {tau}" for tau in FIXED_TAUS[:4]) + " |"
    yield "|---" * 7 + "|"
    for (group, rounds, column), rows in short.items():
        for row in ADAPTIVE:
            if row in rows:
                figures = [
                    difference(rows[row], rows[tau]) if tau in rows else ""
                    for tau in FIXED_TAUS[:4]
                ]
                yield (
                    f"| {group} | {rounds} rounds, {column} | {ADAPTIVE[row]} | "
                    + " | ".join(figures)
                    + " |"
                )


def printed_note(one: FinishedCell) -> str:
    """Returns the printed value in brackets, where there is one."""
    return "" if one.cell.printed is None else f" [{one.cell.printed:g}]"


def difference(one: FinishedCell, other: FinishedCell) -> str:
    """Returns the mean difference over common seeds, with a 95 % interval if there are several."""
    values = [
        dict(zip(cell.seeds, (o.value for o in cell.outcomes), strict=True))
        for cell in (one, other)
    ]
    gaps = [values[0][seed] - values[1][seed] for seed in values[0].keys() & values[1].keys()]
    return mean_text(gaps, "+.2f") if gaps else ""


def course(table: PaperTable, cells: list[FinishedCell]) -> Iterator[str]:
    """Yields a table of accuracies over seeds, with the steps, rounds and tau of the first seed."""
    for group, column, rows in columns(cells):
        yield f"\n## {table.title}; {group}, {column}\n"
        heads = ("", "accuracy, % [printed]", "seeds", "steps", "rounds", "epsilon proven")
        yield f"| {' | '.join(heads)} | tau of rounds {', '.join(map(str, TAU_ROUNDS))} |"
        yield "|---" * 7 + "|"
        for row, one in rows.items():
            first = one.outcomes[0]
            yield (
                f"| {row} | {one.text()}{printed_note(one)} | {len(one.seeds)} | {first.steps} | "
                f"{first.rounds} | "
                f"{shown_epsilon(one.proven)} | {taus(first)} |"
            )


def taus(outcome: Outcome) -> str:
    """Returns tau in selected rounds and in the last."""
    tau = [int(steps or 0) for steps in outcome.series["tau"]]
    return (
        f"{', '.join(str(tau[round - 1]) for round in TAU_ROUNDS if round <= len(tau))}; last "
        f"{tau[-1]}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
