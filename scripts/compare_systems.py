"""Prints the tables of docs/systems.md: every system on MNIST at equal proven epsilon, or at equal
claimed epsilon if it proves none.

    DPFL_DATA=... python scripts/compare_systems.py sample|client

Sample level: 10 clients, Dirichlet(0.5), `cnn`, epsilon 2, 60 rounds. Client level: 300 clients
with 200 images each, `mlp` with 32 hidden units, epsilon 8, 40 rounds. There is one seed. Rates
were chosen on the embedded images only.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import dpfl
from dpfl.algorithms import from_name
from dpfl.data import IID, Dirichlet
from dpfl_papers.haar_energies import haar_energies

Setting = tuple[str, dict[str, Any]]

SAMPLE: list[Setting] = [
    ("fedavg-dp", {"tau": 1}),
    ("fedavg-dp", {"tau": 3, "rate": 1.0}),
    ("ali-dpfl", {"sampling_rate": 0.05, "noise_multiplier": 1.6, "rate": 1.0}),
    (
        "ali-dpfl",
        {"sampling_rate": 0.05, "noise_multiplier": 1.6, "rate": 1.0, "whole_budget": True},
    ),
    ("ali-dpfl", {"sampling_rate": 0.05, "noise_multiplier": 1.6, "rate": 1.0, "mu": "paid"}),
    (
        "ali-dpfl",
        {"variant": "published", "sampling_rate": 0.05, "noise_multiplier": 1.6, "rate": 1.0},
    ),
    ("als-dpfl", {"sampling_rate": 0.05, "noise_multiplier": 1.6, "rate": 1.0}),
    (
        "als-dpfl",
        {"variant": "published", "sampling_rate": 0.05, "noise_multiplier": 1.6, "rate": 1.0},
    ),
    ("hw-dpfl", {"batch_size": 70, "rate": 1.0}),
    (
        "hw-dpfl",
        {
            "variant": "published",
            "batch_size": 70,
            "tau": 1,
            "samples": 6000,
            "rate": 1.0,
            "round_epsilon": 0.25,
        },
    ),
    ("dp-sgd-wav", {}),
    ("dp-sgd-wav", {"haar_weights": "orthonormal"}),
    ("dp-sgd-wav", {"haar_weights": "matched", "by_layer": True}),
    ("dp-sgd-wav", {"variant": "published"}),
    ("dyn-dp-sgd", {}),
    ("dyn-dp-sgd", {"variant": "published"}),
    ("adap-dp-fl", {"tau": 1, "alpha": 3.0}),
    ("dp-scaffold", {"tau": 3, "rate": 0.5}),
    (
        "fedprox",
        {"tau": 3, "sampling_rate": 0.05, "noise_multiplier": 1.62, "rate": 1.0, "prox": 0.1},
    ),
]
CLIENT: list[Setting] = [
    ("dp-fedavg", {"cohort": 60, "clip": 0.5, "tau": 8}),
    ("dp-fedavg", {"cohort": 60, "clip": 0.5, "tau": 8, "clipping": "quantile"}),
    ("dp-fedavg-wav", {"cohort": 60, "clip": 0.5, "tau": 8}),
    ("dp-fedavg-wav", {"cohort": 60, "clip": 0.5, "tau": 8, "haar_weights": "orthonormal"}),
    (
        "dp-fedavg-wav",
        {"variant": "published", "clipping": "updates", "cohort": 60, "clip": 0.5, "tau": 8},
    ),
    ("dyn-dp-fedavg", {"cohort": 60, "clip": 0.75, "tau": 8}),
    ("dp-ftrl", {"cohort": 60, "clip": 0.5, "tau": 8}),
    ("ldp-fl", {"clip": 0.5, "tau": 8}),
    ("pe-dpfl", {"clip": 0.5, "tau": 8, "rate": 0.05}),
    ("nbafl", {"clip": 6.0, "tau": 8}),
    (
        "nbafl",
        {
            "variant": "published",
            "clip": 6.0,
            "tau": 8,
            "samples": 200,
            "clients": 300,
            "rounds": 40,
            "exposures": 40,
            "total_epsilon": 8.0,
        },
    ),
    ("fedavg", {"cohort": 60, "tau": 8}),
    ("fedprox", {"cohort": 60, "tau": 8, "prox": 0.1}),
    ("ce-fedavg", {"cohort": 60, "tau": 8, "clip": 0.5}),
    ("scaffold", {"cohort": 60, "tau": 8}),
    ("moon", {"cohort": 60, "tau": 8}),
]
WITHOUT_NOISE = ("fedavg", "ce-fedavg", "scaffold", "moon")


def main(level: str) -> None:
    """Prints the table of one level, `sample` or `client`."""
    sample = level == "sample"
    how = Dirichlet(0.5) if sample else IID()
    federation = dpfl.data.mnist().split(clients=10 if sample else 300, how=how, seed=0)
    model = dpfl.models.cnn() if sample else dpfl.models.mlp(hidden=32)
    budget = dpfl.Budget(epsilon=2.0 if sample else 8.0, delta=1e-5, rounds=60 if sample else 40)
    print("| system | options | steps per client | proven | claimed | accuracy |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, options in SAMPLE if sample else CLIENT:
        print(line(name, options, run(name, options, model, federation, budget)), flush=True)


def run(
    name: str,
    options: dict[str, Any],
    model: Any,
    federation: dpfl.data.Federation,
    budget: dpfl.Budget,
) -> dpfl.Result:
    """Trains one system in a temporary folder."""
    if options.get("haar_weights") == "matched":
        public = dpfl.data.sample().train
        options = options | {
            "energies": haar_energies(
                model.build((1, 28, 28), 10, 0), public.x[:500], public.y[:500], True
            )
        }
    noiseless = name in WITHOUT_NOISE or (name == "fedprox" and "sampling_rate" not in options)
    own_budget = dpfl.Budget(rounds=budget.rounds) if noiseless else budget
    with tempfile.TemporaryDirectory() as folder:
        return dpfl.train(
            model,
            federation,
            from_name(name, **options),
            own_budget,
            execution=dpfl.Execution(out=Path(folder) / "run", workers=2),
        )


def line(name: str, options: dict[str, Any], result: dpfl.Result) -> str:
    """Returns the line of one system."""
    words = ", ".join(f"{key} {value}" for key, value in options.items())
    figures = result.privacy.to_dict()
    proven, claimed = (
        figures[key] if isinstance(figures[key], str) else _short(figures[key])
        for key in ("proven", "claimed")
    )
    return (
        f"| `{name}` | {words or 'defaults'} | {result.iterations} | {proven} | {claimed} | "
        f"{result.accuracy:.2%} |"
    )


def _short(epsilon: Any) -> str:
    return "none" if epsilon is None else f"{epsilon:.4g}"


if __name__ == "__main__":
    main(sys.argv[1])
