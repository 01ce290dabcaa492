"""FedAvg+DP learns, and states its epsilon for one sample."""

from __future__ import annotations

from typing import Any

import pytest

from dpfl.algorithms import fedavg_dp
from dpfl.data import Federation
from tests.algorithms.checks import Train, assert_sample_level

OPTIONS: dict[str, dict[str, Any]] = {
    "sgd": {"rate": 1.0},
    "momentum": {"rate": 0.2, "optimiser": "momentum"},
    "adam": {"rate": 0.01, "optimiser": "adam"},
    "adagrad": {"rate": 0.02, "optimiser": "adagrad"},
    "per-layer": {"rate": 1.0, "clipping": "per-layer"},
    "server momentum": {"rate": 0.5, "server_momentum": 0.5},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_it_learns_and_states_its_epsilon_for_one_sample(
    train: Train, federation: Federation, name: str
) -> None:
    algorithm = fedavg_dp(tau=3, sampling_rate=0.2, noise_multiplier=0.6, **OPTIONS[name])
    result = train(federation, algorithm, rounds=8, accountant="rdp")
    assert_sample_level(result, claimed_by="rdp-classic")


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_fedavg_dp_plans_noise_that_stays_inside_epsilon_and_uses_it_up(
    train: Train, federation: Federation, optimiser: str
) -> None:
    rate = {"sgd": 1.0, "adam": 0.01}[optimiser]
    result = train(
        federation,
        fedavg_dp(tau=2, sampling_rate=0.1, rate=rate, optimiser=optimiser),
        epsilon=8.0,
        rounds=8,
    )
    assert (result.rounds, result.iterations, result.stopped_by) == (8, 16, "rounds")
    assert result.privacy.accountant == "pld"
    assert 7.9 < result.privacy.proven <= 8.0
    assert result.accuracy > 0.25
