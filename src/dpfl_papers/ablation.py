"""Measures what each ingredient of `auto` contributes at equal proven epsilon. One is changed at a
time.
"""

from __future__ import annotations

from typing import Any

from dpfl_papers.ali import SKEWS, content, features
from dpfl_papers.cells import NAMES, Cell, PaperTable
from dpfl_papers.training import Training

FULL: dict[str, Any] = {"name": "auto"}
CHANGES: dict[str, dict[str, Any]] = {
    "auto": {},
    "no mean": {"mean_noise": 0.0},
    "averaging": {"averaging": 3.0},
    "clip 5: few gradients of one length": {"clip": 5.0},
    "q = 0.05": {"sampling_rate": 0.05},
    "walk 10": {"walk": 10.0},
    "walk 22": {"walk": 22.0},
    "tau = 2": {"tau": 2},
    "tau = 5": {"tau": 5},
}
LIMITS = ((2.0, 317), (2.0, 60))
CHOICES = (
    "10 clients, Dirichlet(0.05), no client below 600 images; epsilon 2 at delta 1e-5, proven by "
    "PLD.",
    "Without features: `cnn` with tanh, once trained by `auto` and once by `fedavg-dp` (q 0.05, "
    "clip 1, rate 2).",
    "The noise is planned anew for every change; so is the learning rate, by the same rule.",
)


def tables() -> dict[str, PaperTable]:
    """Builds the table of `auto` with one ingredient changed per row.

    Returns:
        The one table, under its name `auto`.
    """
    cells = [
        cell
        for data in ("mnist", "fashion-mnist")
        for limit in LIMITS
        for cell in _column(data, *limit)
    ]
    return {
        "auto": PaperTable(
            "auto", "auto: what each of its ingredients gives", tuple(cells), CHOICES
        )
    }


def _column(data: str, epsilon: float, rounds: int) -> list[Cell]:
    partition, _ = SKEWS["Dir(0.05)"]
    column, plain = f"eps {epsilon:g}, {rounds} rounds", {"name": "cnn"}
    variants = {row: (FULL | change, features(data)) for row, change in CHANGES.items()}
    variants |= {
        "no features (cnn)": (FULL, plain),
        "fedavg-dp, cnn": ({"name": "fedavg-dp"}, plain),
    }
    return [
        Cell(
            NAMES[data],
            row,
            column,
            Training(content(data, partition, algorithm, epsilon, rounds) | {"model": model}),
            None,
            epsilon,
        )
        for row, (algorithm, model) in variants.items()
    ]
