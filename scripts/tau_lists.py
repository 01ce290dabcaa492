"""docs/systems.md's figure: the tau of every round that ALI-DPFL and ALS-DPFL choose on MNIST, published and sound.

    DPFL_DATA=... python scripts/tau_lists.py OUT.png

The privacy budget buys R_c steps at q = 0.015, sigma = 1.1 by the papers' accounting (RDP, classic conversion), and there are
R_c / 2 or R_c / 5 rounds to make them in.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import dpfl
from dpfl.algorithms import from_name
from dpfl.data import Dirichlet

EPSILON, DELTA, R_C = 2.0, 1e-5, 314
SYSTEMS = [
    ("ali-dpfl", "sound", {}),
    ("ali-dpfl", "published", {}),
    ("ali-dpfl", "sound", {"formula": "printed"}),
    ("als-dpfl", "sound", {}),
    ("als-dpfl", "published", {}),
]


def main(picture: Path) -> None:
    federation = dpfl.data.mnist().split(clients=10, how=Dirichlet(0.05), seed=0)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
    heads = ("rounds", "system", "variant", "tau of rounds 1, 2, 3, 5, 10, 20, last", "rounds made", "steps", "accuracy")
    print("| " + " | ".join((*heads, "proven", "claimed")) + " |")
    print("|---" * 9 + "|")
    for panel, share in zip(axes, (2, 5), strict=True):
        rounds = R_C // share
        for name, variant, options in SYSTEMS:
            label = f"{name}, {variant}" + "".join(f", {value}" for value in options.values())
            result = run(federation, from_name(name, variant=variant, **options), rounds)
            taus = [row.steps for row in result.history]
            panel.step(range(1, len(taus) + 1), taus, where="mid", label=label)
            print(
                line(rounds, name, f"{variant}{''.join(f', {value}' for value in options.values())}", taus, result), flush=True
            )
        panel.set(title=f"R_s = R_c / {share} = {rounds}", xlabel="round", yscale="log")
    axes[0].set_ylabel("tau")
    axes[1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, dpi=130)


def run(federation: dpfl.data.Federation, algorithm: dpfl.algorithms.Algorithm, rounds: int) -> dpfl.Result:
    budget = dpfl.Budget(epsilon=EPSILON, delta=DELTA, rounds=rounds)
    with tempfile.TemporaryDirectory() as folder:
        return dpfl.train(
            dpfl.models.cnn(), federation, algorithm, budget, out=Path(folder) / "run", workers=2, accountant="rdp-classic"
        )


def line(rounds: int, name: str, variant: str, taus: list[int], result: dpfl.Result) -> str:
    shown = [str(taus[at - 1]) for at in (1, 2, 3, 5, 10, 20) if at <= len(taus)] + [str(taus[-1])]
    figures = result.privacy.to_dict()
    cells = [str(rounds), f"`{name}`", variant, ", ".join(shown), str(result.rounds), str(result.iterations)]
    return "| " + " | ".join([*cells, f"{result.accuracy:.2%}", str(figures["proven"]), str(figures["claimed"])]) + " |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
