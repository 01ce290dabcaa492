"""FedProx: a pull that costs nothing, with plain steps or with DP-SGD steps."""

from __future__ import annotations

from dpfl.algorithms import fedprox
from dpfl.data import Federation
from tests.algorithms.checks import Train, assert_nothing_proven, assert_sample_level


def test_with_plain_steps_it_learns_and_proves_nothing(
    train: Train, federation: Federation
) -> None:
    assert_nothing_proven(train(federation, fedprox(tau=5, prox=0.1), rounds=8))


def test_with_private_steps_it_states_epsilon_for_one_sample_and_claims_nothing(
    train: Train, federation: Federation
) -> None:
    algorithm = fedprox(tau=3, sampling_rate=0.2, noise_multiplier=0.6, rate=1.0, prox=0.1)
    assert_sample_level(train(federation, algorithm, rounds=8, accountant="rdp"), claimed_by=None)


def test_private_steps_without_a_noise_multiplier_have_planned_noise() -> None:
    assert fedprox().samples is None
    assert fedprox(private=True).samples.uncalibrated
    assert fedprox(noise_multiplier=2.0).samples.noise_multiplier == 2.0
