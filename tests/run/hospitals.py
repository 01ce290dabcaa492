"""Four hospitals, and what their ledgers hold."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from dpfl.algorithms import fedavg_dp
from dpfl.data import ExplicitPartition, Federation
from dpfl.privacy import Ledger
from tests.conftest import small_source

STEPS = fedavg_dp(sampling_rate=0.05, noise_multiplier=1.0)


def hospitals(order: str = "abcd", seed: int = 0) -> Federation:
    """Four hospitals, each with the same images in whatever order they are listed."""
    parts = dict(
        zip("abcd", np.array_split(np.random.default_rng(seed).permutation(1000), 4), strict=True)
    )
    return small_source().split(
        4, ExplicitPartition({name: parts[name].tolist() for name in order})
    )


def spent(folder: Path) -> dict[str, int]:
    found = {}
    for path in sorted(folder.glob("*.sqlite")):
        with closing(Ledger.read(path)) as ledger:
            found[path.stem] = sum(ledger.spending().values())
    return found
