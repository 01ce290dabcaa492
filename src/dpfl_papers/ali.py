"""ALI-DPFL: Tables II to V and Figures 1, 4, 5.

R_c is the number of steps that epsilon allows by the paper's accounting at q = 0.015 and
sigma = 1.1. Every method may make R_c steps: its budget is the epsilon that is proven of them. That
epsilon is below the paper's and the same for all methods. `auto` runs at both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dpfl.privacy import Poisson, accountant
from dpfl_papers.ali_printed import (
    METHODS,
    PE_DPFL,
    PRINTED_ROWS,
    RATIOS,
    STEPS_OF_EPSILON,
    TABLE_V,
    parse_rows,
)
from dpfl_papers.cells import NAMES, Cell, PaperTable
from dpfl_papers.training import Training

DELTA, SAMPLING_RATE, NOISE, RATE = 1e-5, 0.015, 1.1, 0.5
DATA = ("mnist", "fashion-mnist", "cifar10")
PATCHES = 512
"""That `auto` compares photographs with, in a row of its own."""
SECURE = "auto, the column's epsilon, secure sums"
PATCHES_ROW = f"{SECURE}, patches"
CODE = "ALI-DPFL, published, the code"
OWN: dict[str, dict[str, Any]] = {
    "ALI-DPFL, printed formula": {"formula": "printed"},
    "ALI-DPFL, the code's formula": {"formula": "code"},
    "ALI-DPFL, printed formula, mu paid": {"formula": "printed", "mu": "paid"},
    "ALI-DPFL, whole budget": {"whole_budget": True},
    "ALI-DPFL, published": {"variant": "published"},
    CODE: {"variant": "published", "reading": "code"},
}
"""Variants of the paper's system, where rounds are short: the two repairs one by one, and two
readings of what is published.
"""
SKEWS: dict[str, tuple[dict[str, Any], float]] = {
    "IID": ({"partition": "iid"}, 0.0),
    "Dir(0.05)": ({"partition": "dirichlet", "beta": 0.05, "minimum": 600}, 10.0),
    "Dir(0.5)": ({"partition": "dirichlet", "beta": 0.5, "minimum": 600}, 5.0),
    "Dir(1)": ({"partition": "dirichlet", "beta": 1.0, "minimum": 600}, 1.0),
}
"""Partition and Gamma of Table V."""

CHOICES = (
    "Model: `cnn` with relu (the 26,010 parameters of the ALS-DPFL paper); this paper says two "
    "convolutions and two layers.",
    "Clip 1, as in the ALS-DPFL paper; this paper names none. Learning rate 0.5, q 0.015, sigma "
    "1.1, Gamma 10 as printed.",
    "R_s = 158, 317, 598: the printed 231 fits no column. R_c as printed, up to three steps beyond "
    "the epsilon.",
    "The budget of every method is the epsilon proven (PLD) of R_c steps at q and sigma: equal for "
    "all, below the paper's.",
    "No client has fewer than 600 images (a tenth of the mean): with a handful, q n_i < 1 and tau* "
    "is 1 whatever the data.",
    "The divisor is q n_i, not the batch as drawn; ALI-DPFL is `sound` (mu from what was released, "
    "corrected formula). The "
    "rows below it change one thing each: the formula, mu's source, or tau where privacy would be "
    "left unspent.",
    "`published` follows the paper (formula (9), raw gradients at the new aggregate, each on one "
    "batch); *the code* is what "
    "the authors' code does: clip 0.1, divisor 64, steps in the place of gradients, Gamma from "
    "losses, train and test images "
    "merged, a client closed at its share, the best round reported. Both stop by the paper's "
    "epsilon; none holds for either.",
    "`auto` makes all R_s rounds, with `scattering-linear` (mirrored for CIFAR-10), at the epsilon "
    "proven of R_c steps and at "
    "the column's; with secure sums at the column's, over all ten clients (`survivors = 10`, "
    "`colluders = 0`); "
    "for CIFAR-10 also with `patches = 512` beside the scattering features.",
    "Adap DP-FL begins with sigma 1.1; clip and sigma are a client's own. PE-DPFL is inferred: "
    "noise on whole uploads, "
    "whose unit is the client. Planned for the column's epsilon it diverges, so its noise is a "
    "thousandth of what moves, at "
    "which it trains; what is proven of that is an epsilon of millions: its row is about training, "
    "and not about privacy.",
)


@lru_cache
def proven(steps: int) -> float:
    """Computes the epsilon that is proven of some steps, with the PLD accountant.

    Args:
        steps: Number of steps at the paper's sampling rate and noise.

    Returns:
        Epsilon at delta 1e-5, rounded up to a budget that allows exactly these steps.
    """
    event = Poisson(SAMPLING_RATE).event(NOISE, 1)
    return math.ceil(1e6 * accountant("pld").epsilon({event: steps}, DELTA)) / 1e6


def content(
    data: str,
    partition: dict[str, Any],
    algorithm: dict[str, Any],
    epsilon: float | None,
    rounds: int,
    model: str = "cnn",
) -> dict[str, Any]:
    """Writes the content of an experiment file on ten clients.

    Args:
        data: Name of the data set.
        partition: Options of `[data]` that deal the samples to clients.
        algorithm: Content of `[algorithm]`.
        epsilon: The budget at delta 1e-5; None if the run has no limit on epsilon.
        rounds: Limit on the rounds, after which the model is evaluated.
        model: Name of the network.

    Returns:
        The sections of the experiment by name.
    """
    return {
        "data": {"name": data, "clients": 10} | partition,
        "model": {"name": model, "activation": "relu"},
        "algorithm": algorithm,
        "budget": {"epsilon": epsilon, "delta": DELTA, "rounds": rounds},
        "evaluate": {"every": rounds},
    }


def features(data: str) -> dict[str, Any]:
    """Describes the model of `auto`.

    Args:
        data: Name of the data set. Photographs, unlike digits, may face either way, so on CIFAR-10
            features are averaged over mirror images.

    Returns:
        The content of `[model]`.
    """
    return {"name": "scattering-linear"} | ({"mirror": True} if data == "cifar10" else {})


def method(row: str, gamma: float = 10.0) -> dict[str, Any]:
    """Describes the algorithm of a row.

    Args:
        row: Name of the method.
        gamma: Gamma of ALI-DPFL's bound, which measures the skew.

    Returns:
        The content of `[algorithm]`.
    """
    common = {"sampling_rate": SAMPLING_RATE, "clip": 1.0, "noise_multiplier": NOISE, "rate": RATE}
    if row.startswith("tau = "):
        return {"name": "fedavg-dp", "tau": int(row.removeprefix("tau = "))} | common
    if row == CODE:
        common = {name: value for name, value in common.items() if name != "clip"}
        return {"name": "ali-dpfl", **OWN[CODE]} | common
    if row.startswith("ALI-DPFL"):
        return {"name": "ali-dpfl", "gamma": gamma} | OWN.get(row, {}) | common
    return {
        PE_DPFL: {
            "name": "pe-dpfl",
            "tau": 3,
            "rate": 0.1,
            "clip": 1.0,
            "noise_multiplier": 0.001,
        },
        "Adap DP-FL": {"name": "adap-dp-fl", "tau": 3} | common,
    }[row]


@dataclass(frozen=True)
class Column:
    """A column of a printed table: one federation under one limit.

    Attributes:
        name: Heading of the column.
        data: Name of the data set.
        partition: Options of `[data]` that deal the samples to clients.
        rounds: Limit on the rounds, R_s.
        epsilon: Limit on epsilon, by the paper's accounting.
        gamma: Gamma of ALI-DPFL's bound for this skew.
        model: Name of the network.
    """

    name: str
    data: str
    partition: dict[str, Any]
    rounds: int
    epsilon: float
    gamma: float
    model: str = "cnn"

    def cell(self, row: str, printed_accuracy: float | None) -> Cell:
        """Builds one cell of the column.

        Args:
            row: Name of the method.
            printed_accuracy: Printed accuracy in percent; None if nothing is printed.

        Returns:
            The cell, with the work that gives our figure.
        """
        algorithm, steps = method(row, self.gamma), STEPS_OF_EPSILON[self.epsilon]
        # A method of fixed tau ends with its privacy: unused rounds would change nothing.
        rounds = self.rounds
        if "tau" in algorithm:
            rounds = min(rounds, math.ceil(steps / algorithm["tau"]))
        epsilon = self.epsilon if "published" in row else proven(steps)
        experiment = content(
            self.data,
            self.partition,
            algorithm,
            None if row == PE_DPFL else epsilon,
            rounds,
            self.model,
        )
        work = as_in_the_code(experiment) if row == CODE else Training(experiment)
        return Cell(NAMES[self.data], row, self.name, work, printed_accuracy, self.epsilon)

    def cells(self, printed_accuracies: dict[str, float]) -> list[Cell]:
        """Builds the whole column.

        Args:
            printed_accuracies: Printed accuracy of each method.

        Returns:
            Every method of the paper, the variants of its own, and `auto` at both epsilons and with
            secure sums.
        """
        steps = STEPS_OF_EPSILON[self.epsilon]
        rows = [*METHODS, *(OWN if self.rounds < steps else ())]
        cells = [self.cell(row, printed_accuracies.get(row)) for row in rows]
        group, auto = NAMES[self.data], {"name": "auto"}
        for row, epsilon in (
            ("auto, same proven epsilon", proven(steps)),
            ("auto, the column's epsilon", self.epsilon),
        ):
            experiment = content(self.data, self.partition, auto, epsilon, self.rounds)
            work = Training(experiment | {"model": features(self.data)})
            cells.append(Cell(group, row, self.name, work, None, epsilon))
        sums = secure_content(self.data, self.partition, self.epsilon, self.rounds)
        cells.append(Cell(group, SECURE, self.name, Training(sums), None, self.epsilon))
        if self.data == "cifar10":
            patches = sums | {"model": features(self.data) | {"patches": PATCHES}}
            cells.append(Cell(group, PATCHES_ROW, self.name, Training(patches), None, self.epsilon))
        return cells


def as_in_the_code(experiment: dict[str, Any]) -> Training:
    """Changes an experiment to what the authors' code does.

    Args:
        experiment: Content of the experiment file.

    Returns:
        Training on train and test images together, with classes dealt as the code deals them. Its
        figure is the best round.
    """
    data = experiment["data"]
    if data["partition"] == "dirichlet":
        data = data | {"partition": "closed", "minimum": 40}
    if data["name"] != "cifar10":
        data = data | {"merged": True}
    return Training(experiment | {"data": data, "evaluate": {"every": 1}}, "best")


def secure_content(
    data: str, partition: dict[str, Any], epsilon: float, rounds: int
) -> dict[str, Any]:
    """Describes `auto` where the server sees only sums over all ten clients.

    Args:
        data: Name of the data set.
        partition: Options of `[data]` that deal the samples to clients.
        epsilon: Limit on epsilon.
        rounds: Limit on the rounds.

    Returns:
        The content of an experiment with secure sums, whose clients share the noise of one party.
    """
    alone = content(data, partition, {"name": "auto"}, epsilon, rounds)
    return alone | {
        "model": features(data),
        "privacy": {"aggregation": "secure", "survivors": 10, "colluders": 0},
    }


def tables() -> dict[str, PaperTable]:
    """Builds Tables II to V and the figures that show their cells.

    Returns:
        The tables by name.
    """
    by_name = {name: _accuracies(name) for name in PRINTED_ROWS}
    by_name["ali-5"] = _skews()
    by_name["ali-fig1"] = PaperTable(
        "ali-fig1",
        "ALI-DPFL, Figure 1: accuracy of fixed tau under different limits",
        _fixed_tau_cells(by_name),
        CHOICES,
        picture="taus",
    )
    by_name["ali-fig4"] = PaperTable(
        "ali-fig4",
        "ALI-DPFL, Figure 4: tau of every round where R_s < R_c",
        _adaptive(by_name),
        CHOICES,
        picture="steps",
    )
    by_name["ali-fig5"] = PaperTable(
        "ali-fig5",
        "ALI-DPFL, Figure 5: how often each fixed tau is the best",
        _fixed_tau_cells(by_name),
        CHOICES,
        picture="best",
    )
    return by_name


def _accuracies(name: str) -> PaperTable:
    rounds, budgets, text = PRINTED_ROWS[name]
    rows = parse_rows(text)
    cells: list[Cell] = []
    for group, data in enumerate(DATA):
        for place, (ratio, epsilon) in enumerate(zip(RATIOS, budgets, strict=True)):
            printed_accuracies = {row: line[3 * place + group] for row, line in rows.items()}
            partition, gamma = SKEWS["Dir(0.05)"]
            column = f"{ratio}, eps {epsilon:g}"
            cells += Column(column, data, partition, rounds, epsilon, gamma).cells(
                printed_accuracies
            )
    number = {"ali-2": "II", "ali-3": "III", "ali-4": "IV"}[name]
    return PaperTable(
        name, f"ALI-DPFL, Table {number}: accuracy within {rounds} rounds", tuple(cells), CHOICES
    )


def _skews() -> PaperTable:
    rows = parse_rows(TABLE_V)
    cells: list[Cell] = []
    for place, (column, (partition, gamma)) in enumerate(SKEWS.items()):
        printed_accuracies = {row: line[place] for row, line in rows.items()}
        cells += Column(column, "fashion-mnist", partition, 106, 2.0, gamma).cells(
            printed_accuracies
        )
    rounds = "R_s = R_c / 3 is taken as 106 rounds of 317 steps."
    return PaperTable(
        "ali-5",
        "ALI-DPFL, Table V: accuracy under skew, R_s = R_c / 3, eps 2",
        tuple(cells),
        (*CHOICES, rounds),
    )


def _fixed_tau_cells(accuracy_tables: dict[str, PaperTable]) -> tuple[Cell, ...]:
    return tuple(
        cell
        for name in PRINTED_ROWS
        for cell in accuracy_tables[name].cells
        if cell.row.startswith("tau = ")
    )


def _adaptive(accuracy_tables: dict[str, PaperTable]) -> tuple[Cell, ...]:
    """Returns the cells of ALI-DPFL where rounds are short. Other figures show all columns."""
    short = RATIOS[2:]
    return tuple(
        cell
        for name in PRINTED_ROWS
        for cell in accuracy_tables[name].cells
        if cell.row.startswith("ALI") and cell.column.startswith(short)
    )
