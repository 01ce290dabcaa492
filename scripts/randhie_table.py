"""docs/results/randhie: visits to a doctor at six sites, by whom the guarantee is for and what
epsilon is, over three seeds.

    python scripts/randhie_table.py [any-visit|visits] [--seeds 3] [--out docs/results/randhie]

The experiment is examples/randhie.toml. `person`: as it stands. `row`: one row is the unit.
`alone`: a person is the unit, and every site trains by itself, measured on the persons of all
sites; the mean over the sites. `without`: the same model by federated averaging, without noise.
Outcomes are kept one by one, and a run that is there is not made again.
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
    label: str
    unit: str
    epsilon: float | None
    seed: int

    @property
    def name(self) -> str:
        return f"{self.label}-{self.unit}-{self.epsilon}-{self.seed}"


def cells(label: str, seeds: int) -> Iterator[Cell]:
    for seed in range(seeds):
        yield Cell(label, "without", None, seed)
        for unit in ("person", "row", "alone"):
            for epsilon in EPSILONS:
                yield Cell(label, unit, epsilon, seed)


def made(cell: Cell) -> dict[str, Any]:
    unit = "sample" if cell.unit == "row" else "person"
    settings = [
        f"seed={cell.seed}",
        f"data.label={cell.label}",
        f"privacy.unit={unit}",
        *LABELS[cell.label][2],
    ]
    if cell.epsilon is None:
        settings += ["algorithm.name=fedavg", "budget.rounds=60"]
        content = _plain(load(EXAMPLE, settings))
        return _outcome(content, content.federation())
    experiment = load(EXAMPLE, [*settings, f"budget.epsilon={cell.epsilon}"])
    federation = experiment.federation()
    if cell.unit != "alone":
        return _outcome(experiment, federation)
    sites = [
        replace(federation, clients=(rows,), names=(name,))
        for rows, name in zip(federation.clients, federation.names, strict=True)
    ]
    found = [_outcome(experiment, site) for site in sites]
    figures = {
        name: statistics.mean(one["metrics"][name] for one in found) for name in found[0]["metrics"]
    }
    return {
        "metrics": figures,
        "proven": max(one["proven"] for one in found),
        "unit": found[0]["unit"],
    }


def _plain(experiment: Experiment) -> Experiment:
    """Without the options and words that only noise has."""
    said = experiment.model_dump(exclude_none=True, exclude_unset=True)
    said["algorithm"] = {
        "name": "fedavg",
        "tau": 5,
        "rate": 0.3 if said["data"]["label"] == "any-visit" else 0.025,
    }
    said.pop("privacy", None)
    said["budget"] = {"rounds": 60}
    return dpfl.config.experiment.parse(said)


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


def report(label: str, found: dict[Cell, dict[str, Any]], folder: Path) -> None:
    shown, metric, _ = LABELS[label]
    with (folder / f"{label}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["label", "unit", "epsilon", "seed", "proven", *next(iter(found.values()))["metrics"]]
        )
        for cell, one in found.items():
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
        f"| {shown} | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---" * 5 + "|",
    ]
    names = {
        "person": "one person (federated)",
        "row": "one row (federated)",
        "alone": "one person, each site alone (mean of six)",
    }
    for unit, name in names.items():
        figures = [_figure(found, unit, epsilon, metric) for epsilon in EPSILONS]
        rows.append(f"| {name} | " + " | ".join(figures) + " |")
    rows.append(f"| without privacy | {_figure(found, 'without', None, metric)} | | | |")
    (folder / f"{label}.md").write_text("\n".join(rows) + "\n")
    print("\n".join(rows))


def _figure(
    found: dict[Cell, dict[str, Any]], unit: str, epsilon: float | None, metric: str
) -> str:
    values = [
        one["metrics"][metric]
        for cell, one in found.items()
        if (cell.unit, cell.epsilon) == (unit, epsilon)
    ]
    spread = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}" if values else "-"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("label", choices=[*LABELS], nargs="?", default="any-visit")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/randhie"))
    said = parser.parse_args()
    kept, found = said.out / "cells", {}
    kept.mkdir(parents=True, exist_ok=True)
    for cell in cells(said.label, said.seeds):
        file = kept / f"{cell.name}.json"
        if not file.exists():
            file.write_text(json.dumps(made(cell)))
            print(cell.name, flush=True)
        found[cell] = json.loads(file.read_text())
    report(said.label, found, said.out)


if __name__ == "__main__":
    main()
