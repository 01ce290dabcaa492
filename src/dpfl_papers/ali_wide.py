"""ALI-DPFL with the network of its authors' code, and the readings of its text beside one printed
number.

tau* depends on the number of parameters, so what the system does depends on the network. These are
Tables II to V and Figure 4 with 582,026 parameters in place of 26,010.
"""

from __future__ import annotations

from typing import Any

from dpfl_papers.ali import (
    CHOICES,
    DATA,
    OWN,
    SKEWS,
    Column,
    as_in_the_code,
    content,
    method,
    proven,
)
from dpfl_papers.ali_printed import METHODS, PRINTED_ROWS, RATIOS, TABLE_V, parse_rows
from dpfl_papers.cells import Cell, PaperTable
from dpfl_papers.training import Training

MODEL = "cnn-wide"
ROWS = tuple(row for row in METHODS if row.startswith(("tau", "ALI")))
WIDE = (
    "Model: `cnn-wide` with relu, the network of the authors' code: 582,026 parameters, 878,538 on "
    "CIFAR-10.",
    *CHOICES[1:7],
)
NUMBERS = {"ali-2": "II", "ali-3": "III", "ali-4": "IV"}

LEVEL, PLACE = 97.23, "tau = 1, R_s = R_c = 317, eps 2"
READINGS: dict[str, dict[str, dict[str, Any]]] = {
    "as the text has it, `cnn`": {},
    "`cnn-wide`": {"model": {"name": MODEL}},
    "tanh": {"model": {"activation": "tanh"}},
    "clip 0.1": {"algorithm": {"clip": 0.1}},
    "clip 0.1, rate 5": {"algorithm": {"clip": 0.1, "rate": 5.0}},
    "rate 2": {"algorithm": {"rate": 2.0}},
    "no client below 20 images": {"data": {"minimum": 20}},
    "IID": {"data": {"partition": "iid"}},
    "hardly any noise": {"algorithm": {"noise_multiplier": 0.11}, "budget": {"epsilon": 1e6}},
}
"""What each changes of FedAvg+DP at tau = 1."""


def tables() -> dict[str, PaperTable]:
    """Builds the tables of the larger network and the table of readings.

    Returns:
        The tables by name.
    """
    by_name = {f"{name}-wide": _accuracies(name) for name in PRINTED_ROWS}
    short = tuple(
        cell
        for table in by_name.values()
        for cell in table.cells
        if cell.row.startswith("ALI") and cell.column.startswith(RATIOS[2:])
    )
    title = "ALI-DPFL, Figure 4, the authors' network: tau of every round where R_s < R_c"
    every_table = (
        *by_name.values(),
        _skews(),
        PaperTable("ali-fig4-wide", title, short, WIDE, picture="steps"),
        _levels(),
    )
    return {table.name: table for table in every_table}


def _accuracies(name: str) -> PaperTable:
    rounds, budgets, text = PRINTED_ROWS[name]
    printed_rows = parse_rows(text)
    partition, gamma = SKEWS["Dir(0.05)"]
    cells = [
        Column(f"{ratio}, eps {epsilon:g}", data, partition, rounds, epsilon, gamma, MODEL).cell(
            row, _at(printed_rows, row, 3 * place + group)
        )
        for group, data in enumerate(DATA)
        for place, (ratio, epsilon) in enumerate(zip(RATIOS, budgets, strict=True))
        for row in (*ROWS, *(OWN if ratio in RATIOS[2:] else ()))
    ]
    title = (
        f"ALI-DPFL, Table {NUMBERS[name]}, the authors' network: accuracy within {rounds} rounds"
    )
    return PaperTable(f"{name}-wide", title, tuple(cells), WIDE)


def _skews() -> PaperTable:
    printed_rows = parse_rows(TABLE_V)
    cells = [
        Column(column, "fashion-mnist", partition, 106, 2.0, gamma, MODEL).cell(
            row, _at(printed_rows, row, place)
        )
        for place, (column, (partition, gamma)) in enumerate(SKEWS.items())
        for row in (*ROWS, *OWN)
    ]
    return PaperTable(
        "ali-5-wide",
        "ALI-DPFL, Table V, the authors' network: accuracy under skew",
        tuple(cells),
        WIDE,
    )


def _levels() -> PaperTable:
    """Builds the table of readings that could give a printed level.

    The rows are FedAvg+DP at tau = 1, which ALI-DPFL equals in that column.
    """
    partition, _ = SKEWS["Dir(0.05)"]
    plain = content("mnist", partition, method("tau = 1"), proven(317), 317)
    works = {row: Training(_change(plain, change)) for row, change in READINGS.items()}
    for row, change in (("clip 0.1", {}), ("clip 1", {"clip": 1.0})):
        code = {"name": "ali-dpfl", "variant": "published", "reading": "code", **change}
        for model in ("cnn", MODEL):
            works[f"the code, {row}, `{model}`, best round"] = as_in_the_code(
                content("mnist", partition, code, 2.0, 317, model)
            )
    cells = tuple(Cell("MNIST", row, PLACE, work, LEVEL, 2.0) for row, work in works.items())
    choices = (
        "Every row is one reading of what the paper leaves open, at the number that it prints for "
        "tau = 1; the first is that "
        "of Table III here. Where nothing else is said: `cnn`, relu, clip 1, rate 0.5, 600 images "
        "a client, last round.",
        "*The code*: divisor 64, train and test images merged, a client closed at its share; R_s = "
        "R_c, so tau is 1.",
        "*Hardly any noise* is no reading of the text: a tenth of the noise, to see what the "
        "network could do at most.",
    )
    return PaperTable(
        "ali-levels", "ALI-DPFL: which reading comes to a printed level", cells, choices
    )


def _change(base: dict[str, Any], change: dict[str, dict[str, Any]]) -> dict[str, Any]:
    sections = {name: dict(section) | change.get(name, {}) for name, section in base.items()}
    if sections["data"]["partition"] == "iid":
        sections["data"] = {
            name: sections["data"][name] for name in ("name", "clients", "partition")
        }
    return sections


def _at(printed_rows: dict[str, list[float]], row: str, place: int) -> float | None:
    return printed_rows[row][place] if row in printed_rows else None
