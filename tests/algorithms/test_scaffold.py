"""SCAFFOLD proves nothing, DP-SCAFFOLD its noisy steps; controls are the server's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpfl.algorithms import (
    Algorithm,
    dp_fedavg,
    dp_scaffold,
    fedavg,
    scaffold,
)
from dpfl.data import Federation
from dpfl.errors import DpflError
from tests.algorithms.checks import Train, assert_nothing_proven, assert_sample_level


@pytest.mark.parametrize(
    "algorithm", [scaffold(tau=5), scaffold(tau=5, cohort=2)], ids=["all", "cohort"]
)
def test_scaffold_learns_and_proves_nothing(
    train: Train, federation: Federation, algorithm: Algorithm
) -> None:
    assert_nothing_proven(train(federation, algorithm, rounds=8))


def test_dp_scaffold_states_epsilon_for_one_sample(train: Train, federation: Federation) -> None:
    algorithm = dp_scaffold(tau=3, sampling_rate=0.2, noise_multiplier=0.6, rate=0.3)
    assert_sample_level(train(federation, algorithm, rounds=8, accountant="rdp"), claimed_by="rdp")


def test_controls_need_single_updates_of_plain_sgd() -> None:
    private = dp_fedavg(noise_multiplier=1.0)
    with pytest.raises(DpflError, match="Control variates"):
        replace(private, controls=True)
    with pytest.raises(DpflError, match="Control variates"):
        replace(fedavg(optimiser="adam"), controls=True)
