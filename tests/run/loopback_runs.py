"""A small experiment over nodes in this process."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from dpfl.privacy import Ledger

BASE = {
    "seed": 3,
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 3},
    "model": {"name": "mlp", "hidden": 8},
    "algorithm": {"name": "fedavg-dp", "tau": 2, "sampling_rate": 0.01},
    "budget": {"epsilon": 4.0, "delta": 1e-5, "rounds": 3},
    "privacy": {"entropy": "keyed", "accountant": "rdp"},
}


def spent(folder: Path, names) -> list[dict]:
    found = []
    for name in names:
        with closing(Ledger.read(next(folder.rglob(f"{name}.sqlite")))) as ledger:
            found.append(dict(ledger.spending()))
    return found
