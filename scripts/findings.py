"""The comparisons on the pages docs/results/ali-dpfl.md and auto.md, from the cells that `dpfl
reproduce` has kept.

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
FIXED = tuple(f"tau = {tau}" for tau in (1, 2, 3, 5, 10))
TABLES = ("ali-2", "ali-3", "ali-4")
WIDE = {"ali-2-wide": 158, "ali-3-wide": 317}
"""Tables of the authors' network that were run, and their rounds."""
WENT = ("ali-2-wide", "ali-3-wide", "als-2", "als-3")
ADAPTIVE = {"ALI-DPFL": "ALI-DPFL, sound", "ALI-DPFL, published": "ALI-DPFL, published"}
LOOKED_AT = (1, 2, 3, 5, 10, 20, 50, 100, 200)
"""Rounds whose tau is shown."""


def main(folder: str) -> None:
    known = tables()
    made = {name: collect(known[name], SEEDS, OutcomeStore(Path(folder))) for name in TABLES}
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
        for line in against_all(made[name], known[name]):
            print(line)
    print(
        "\n## ALI-DPFL against fixed tau where rounds are short, `cnn`: differences over the same "
        "seeds\n"
    )
    print("| data | column | | " + " | ".join(f"against {tau}" for tau in FIXED) + " |")
    print("|---" * (3 + len(FIXED)) + "|")
    for name in TABLES:
        for line in against_fixed(made[name]):
            print(line)
    print("\n## The authors' network\n")
    short = short_rounds(
        {name: collect(known[name], SEEDS, OutcomeStore(Path(folder))) for name in WIDE}
    )
    for line in (*levels(short), "", *differences(short)):
        print(line)
    for name in WENT:
        for line in as_it_went(
            known[name], collect(known[name], SEEDS, OutcomeStore(Path(folder)))
        ):
            print(line)
    print("\n## Which reading comes to a printed level\n")
    for one in sorted(
        collect(known["ali-levels"], SEEDS, OutcomeStore(Path(folder))), key=lambda one: -one.mean
    ):
        print(f"| {one.cell.row} | {one.text()} | {one.cell.printed:g} |")


def columns(made: list[FinishedCell]) -> Iterator[tuple[str, str, dict[str, FinishedCell]]]:
    for group, column in dict.fromkeys((one.cell.group, one.cell.column) for one in made):
        yield (
            group,
            column,
            {
                one.cell.row: one
                for one in made
                if (one.cell.group, one.cell.column) == (group, column)
            },
        )


def against_all(made: list[FinishedCell], table: PaperTable) -> Iterator[str]:
    for group, column, rows in columns(made):
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


def against_fixed(made: list[FinishedCell]) -> Iterator[str]:
    for group, column, rows in columns(made):
        if "R_c /" not in column:
            continue
        for ours in ("ALI-DPFL", *OWN):
            if ours in rows and any(tau in rows for tau in FIXED):
                apart = [difference(rows[ours], rows[tau]) if tau in rows else "" for tau in FIXED]
                yield f"| {group} | {column} | {ours} | " + " | ".join(apart) + " |"


Short = dict[tuple[str, str, str], dict[str, FinishedCell]]
"""By data, rounds, and what R_s is of R_c, where that is less: the rows of a column."""


def short_rounds(made: dict[str, list[FinishedCell]]) -> Short:
    found = {
        (group, str(WIDE[name]), column.removeprefix("R_s = ")): rows
        for name in made
        for group, column, rows in columns(made[name])
        if "R_c /" in column
    }
    return dict(sorted(found.items(), key=lambda item: item[0][0] != "MNIST"))


def levels(short: Short) -> Iterator[str]:
    yield (
        "| `cnn-wide` | "
        + " | ".join(f"{group}, {rounds} rounds, {column}" for group, rounds, column in short)
        + " |"
    )
    yield "|---" * (1 + len(short)) + "|"
    for row in (*FIXED[:4], *ADAPTIVE):
        found = [rows.get(row) for rows in short.values()]
        yield (
            f"| {ADAPTIVE.get(row, row)} | "
            + " | ".join(one.text() + beside(one) if one else "" for one in found)
            + " |"
        )


def differences(short: Short) -> Iterator[str]:
    yield "| data | column | | " + " | ".join(f"against {tau}" for tau in FIXED[:4]) + " |"
    yield "|---" * 7 + "|"
    for (group, rounds, column), rows in short.items():
        for row in ADAPTIVE:
            if row in rows:
                found = [
                    difference(rows[row], rows[tau]) if tau in rows else "" for tau in FIXED[:4]
                ]
                yield (
                    f"| {group} | {rounds} rounds, {column} | {ADAPTIVE[row]} | "
                    + " | ".join(found)
                    + " |"
                )


def beside(one: FinishedCell) -> str:
    return "" if one.cell.printed is None else f" [{one.cell.printed:g}]"


def difference(one: FinishedCell, other: FinishedCell) -> str:
    """Over seeds that both have, with the 95 % interval of the mean where there are several."""
    values = [
        dict(zip(made.seeds, (o.value for o in made.outcomes), strict=True))
        for made in (one, other)
    ]
    apart = [values[0][seed] - values[1][seed] for seed in values[0].keys() & values[1].keys()]
    return mean_text(apart, "+.2f") if apart else ""


def as_it_went(table: PaperTable, made: list[FinishedCell]) -> Iterator[str]:
    """Accuracies over seeds; steps, rounds and tau of the first."""
    for group, column, rows in columns(made):
        yield f"\n## {table.title}; {group}, {column}\n"
        heads = ("", "accuracy, % [printed]", "seeds", "steps", "rounds", "epsilon proven")
        yield f"| {' | '.join(heads)} | tau of rounds {', '.join(map(str, LOOKED_AT))} |"
        yield "|---" * 7 + "|"
        for row, one in rows.items():
            first = one.outcomes[0]
            yield (
                f"| {row} | {one.text()}{beside(one)} | {len(one.seeds)} | {first.steps} | "
                f"{first.rounds} | "
                f"{shown_epsilon(one.proven)} | {taus(first)} |"
            )


def taus(outcome: Outcome) -> str:
    tau = [int(steps or 0) for steps in outcome.series["tau"]]
    return (
        f"{', '.join(str(tau[round - 1]) for round in LOOKED_AT if round <= len(tau))}; last "
        f"{tau[-1]}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
