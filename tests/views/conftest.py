"""Small runs that the tests of views share."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpfl
from tests.conftest import MODEL, small_crowd, small_federation


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a private system, one without privacy, and one with public clients; two rounds
    each.
    """
    root = tmp_path_factory.mktemp("runs")
    budget, private = (
        dpfl.Budget(rounds=2),
        dpfl.algorithms.fedavg_dp(noise_multiplier=2.0, sampling_rate=0.5),
    )
    for seed in (0, 1):
        limited = dpfl.Budget(rounds=2, epsilon=20.0)
        dpfl.train(
            MODEL,
            small_federation(),
            private,
            limited,
            execution=dpfl.Execution(out=root / f"private-seed{seed}", seed=seed),
        )
    dpfl.train(
        MODEL, small_federation(), "fedavg", budget, execution=dpfl.Execution(out=root / "plain")
    )
    median = dpfl.algorithms.dp_fedavg(clipping="public-median", noise_multiplier=1.0, cohort=10)
    dpfl.train(MODEL, small_crowd(), median, budget, execution=dpfl.Execution(out=root / "public"))
    return root


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dpfl.Result]:
    """Two systems, the first with two seeds."""
    place = tmp_path_factory.mktemp("runs")
    systems = {
        name: dpfl.algorithms.fedavg_dp(tau=tau, noise_multiplier=2.0)
        for name, tau in (("a", 2), ("b", 2), ("c", 1))
    }
    return [
        dpfl.train(
            MODEL,
            small_federation(),
            algorithm,
            dpfl.Budget(epsilon=8.0, rounds=3),
            privacy=dpfl.Privacy(accountant="rdp"),
            execution=dpfl.Execution(out=place / name, seed=int(name == "b")),
        )
        for name, algorithm in systems.items()
    ]
