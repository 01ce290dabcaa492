"""Writes docs/results/randhie: visits to a doctor at six sites, by privacy unit and epsilon, over
three seeds.

    python scripts/randhie_table.py [any-visit|visits] [--seeds 3] [--out docs/results/randhie]

The experiment is examples/randhie.toml. `person` is the experiment as it stands. In `row`, one row
is the unit. In `alone`, a person is the unit and every site trains by itself. The figure is the
mean over the sites, on the persons of all sites. `without` is the same model by federated averaging
without noise. Outcomes are stored one by one, and a run that has an outcome does not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dpfl
from dpfl.config.experiment import Experiment, load
from dpfl.data import Federation

EXAMPLE = Path(__file__).parents[1] / "examples" / "randhie.toml"
LABELS = {
    "any-visit": ("AUC", "AUC", ()),
    "visits": (
        "explained deviance",
        "explained deviance",
        ("algorithm.clip=16.0", "algorithm.rate=0.025"),
    ),
}
EPSILONS = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Cell:
    """One run: label, privacy unit, epsilon and seed."""

    label: str
    unit: str
    epsilon: float | None
    seed: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.label}-{self.unit}-{self.epsilon}-{self.seed}"


def cells(label: str, seeds: int) -> Iterator[Cell]:
    """Yields every run of a label."""
    for seed in range(seeds):
        yield Cell(label, "without", None, seed)
        for unit in ("person", "row", "alone"):
            for epsilon in EPSILONS:
                yield Cell(label, unit, epsilon, seed)


def outcome(cell: Cell) -> dict[str, Any]:
    """Runs a cell and returns its metrics and its proven epsilon."""
    unit = "sample" if cell.unit == "row" else "person"
    settings = [
        f"seed={cell.seed}",
        f"data.label={cell.label}",
        f"privacy.unit={unit}",
        *LABELS[cell.label][2],
    ]
    if cell.epsilon is None:
        settings += ["algorithm.name=fedavg", "budget.rounds=60"]
        experiment = _plain(load(EXAMPLE, settings))
        return _outcome(experiment, experiment.federation())
    experiment = load(EXAMPLE, [*settings, f"budget.epsilon={cell.epsilon}"])
    federation = experiment.federation()
    if cell.unit != "alone":
        return _outcome(experiment, federation)
    sites = [
        replace(federation, clients=(rows,), names=(name,))
        for rows, name in zip(federation.clients, federation.names, strict=True)
    ]
    outcomes = [_outcome(experiment, site) for site in sites]
    figures = {
        name: statistics.mean(one["metrics"][name] for one in outcomes)
        for name in outcomes[0]["metrics"]
    }
    return {
        "metrics": figures,
        "proven": max(one["proven"] for one in outcomes),
        "unit": outcomes[0]["unit"],
    }


def _plain(experiment: Experiment) -> Experiment:
    """Returns the experiment as federated averaging, without the options of noise."""
    content = experiment.model_dump(exclude_none=True, exclude_unset=True)
    content["algorithm"] = {
        "name": "fedavg",
        "tau": 5,
        "rate": 0.3 if content["data"]["label"] == "any-visit" else 0.025,
    }
    content.pop("privacy", None)
    content["budget"] = {"rounds": 60}
    return dpfl.config.experiment.parse(content)


def _outcome(experiment: Experiment, federation: Federation) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        result = dpfl.train(
            model=dpfl.models.from_name(experiment.model.name),
            federation=federation,
            algorithm=dpfl.algorithms.from_name(
                experiment.algorithm.name, **experiment.algorithm.options()
            ),
            budget=dpfl.Budget(**experiment.budget.model_dump()),
            privacy=dpfl.Privacy(unit=experiment.privacy.unit),
            execution=dpfl.Execution(seed=experiment.seed, out=Path(folder) / "run"),
        )
    return {
        "metrics": dict(result.metrics),
        "proven": result.privacy.proven,
        "unit": result.privacy.unit,
    }


def report(label: str, outcomes: dict[Cell, dict[str, Any]], folder: Path) -> None:
    """Writes the outcomes of a label as CSV and as a table."""
    title, metric, _ = LABELS[label]
    with (folder / f"{label}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "label",
                "unit",
                "epsilon",
                "seed",
                "proven",
                *next(iter(outcomes.values()))["metrics"],
            ]
        )
        for cell, one in outcomes.items():
            writer.writerow(
                [
                    cell.label,
                    cell.unit,
                    cell.epsilon,
                    cell.seed,
                    one["proven"],
                    *one["metrics"].values(),
                ]
            )
    rows = [
        f"| {title} | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---" * 5 + "|",
    ]
    names = {
        "person": "one person (federated)",
        "row": "one row (federated)",
        "alone": "one person, each site alone (mean of six)",
    }
    for unit, name in names.items():
        figures = [_figure(outcomes, unit, epsilon, metric) for epsilon in EPSILONS]
        rows.append(f"| {name} | " + " | ".join(figures) + " |")
    rows.append(f"| without privacy | {_figure(outcomes, 'without', None, metric)} | | | |")
    (folder / f"{label}.md").write_text("\n".join(rows) + "\n")
    print("\n".join(rows))


def _figure(
    outcomes: dict[Cell, dict[str, Any]], unit: str, epsilon: float | None, metric: str
) -> str:
    values = [
        one["metrics"][metric]
        for cell, one in outcomes.items()
        if (cell.unit, cell.epsilon) == (unit, epsilon)
    ]
    spread = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}" if values else "-"


def main() -> None:
    """Runs what has no outcome yet, and writes the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("label", choices=[*LABELS], nargs="?", default="any-visit")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/randhie"))
    options = parser.parse_args()
    folder, outcomes = options.out / "cells", {}
    folder.mkdir(parents=True, exist_ok=True)
    for cell in cells(options.label, options.seeds):
        file = folder / f"{cell.name}.json"
        if not file.exists():
            file.write_text(json.dumps(outcome(cell)))
            print(cell.name, flush=True)
        outcomes[cell] = json.loads(file.read_text())
    report(options.label, outcomes, options.out)


if __name__ == "__main__":
    main()
