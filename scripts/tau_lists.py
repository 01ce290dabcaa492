"""Draws the figure of docs/systems.md: the tau of every round of ALI-DPFL and ALS-DPFL on MNIST,
published and sound.

    DPFL_DATA=... python scripts/tau_lists.py OUT.png

The privacy budget allows R_c steps at q = 0.015 and sigma = 1.1 by the papers' accounting (RDP,
classic conversion), in R_c / 2 or R_c / 5 rounds.
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
    ("ali-dpfl", "sound", {"whole_budget": True}),
    ("als-dpfl", "sound", {}),
    ("als-dpfl", "published", {}),
]


def main(picture: Path) -> None:
    """Runs every system, prints the table and writes the figure."""
    federation = dpfl.data.mnist().split(clients=10, how=Dirichlet(0.05), seed=0)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True, layout="constrained")
    heads = (
        "rounds",
        "system",
        "variant",
        "tau of rounds 1, 2, 3, 5, 10, 20, last",
        "rounds made",
        "steps",
        "accuracy",
    )
    print("| " + " | ".join((*heads, "proven", "claimed")) + " |")
    print("|---" * 9 + "|")
    for panel, share in zip(axes, (2, 5), strict=True):
        rounds = R_C // share
        for name, variant, options in SYSTEMS:
            kind = variant + "".join(
                f", {key} {value}".replace("_", " ").replace(" True", "")
                for key, value in options.items()
            )
            result = run(federation, from_name(name, variant=variant, **options), rounds)
            taus = [row.steps for row in result.history]
            apart = 0.06 * len(panel.lines)  # so that equal lists can be told apart
            panel.step(
                range(1, len(taus) + 1),
                [tau + apart for tau in taus],
                where="mid",
                label=f"{name}, {kind}",
            )
            print(line(rounds, name, kind, taus, result), flush=True)
        panel.set(title=f"R_s = R_c / {share} = {rounds} rounds", xlabel="round", ylim=(0.5, None))
    axes[0].set_ylabel("tau")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
    )
    figure.savefig(picture, dpi=130)


def run(
    federation: dpfl.data.Federation, algorithm: dpfl.algorithms.Algorithm, rounds: int
) -> dpfl.Result:
    """Runs one system for some rounds."""
    budget = dpfl.Budget(epsilon=EPSILON, delta=DELTA, rounds=rounds)
    with tempfile.TemporaryDirectory() as folder:
        return dpfl.train(
            dpfl.models.cnn(),
            federation,
            algorithm,
            budget,
            privacy=dpfl.Privacy(accountant="rdp-classic"),
            execution=dpfl.Execution(out=Path(folder) / "run", workers=2),
        )


def line(rounds: int, name: str, variant: str, taus: list[int], result: dpfl.Result) -> str:
    """Returns the line of one run."""
    values = [str(taus[at - 1]) for at in (1, 2, 3, 5, 10, 20) if at <= len(taus)] + [str(taus[-1])]
    figures = result.privacy.to_dict()
    cells = [
        str(rounds),
        f"`{name}`",
        variant,
        ", ".join(values),
        str(result.rounds),
        str(result.iterations),
    ]
    return (
        "| "
        + " | ".join(
            [*cells, f"{result.accuracy:.2%}", str(figures["proven"]), str(figures["claimed"])]
        )
        + " |"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
