"""Adap DP-FL: a clip norm that follows the noisy gradients, and noise that falls."""

from __future__ import annotations

from dpfl.algorithms import adap_dp_fl
from dpfl.data import Federation
from tests.algorithms.checks import Train, assert_same_on_workers_and_resumed


def test_it_learns_inside_epsilon_and_is_the_same_on_workers_and_resumed(
    train: Train, federation: Federation
) -> None:
    algorithm = adap_dp_fl(tau=2, sampling_rate=0.3, rate=2.0, alpha=3.0, beta=0.9)
    assert_same_on_workers_and_resumed(train, federation, algorithm, epsilon=12.0)


def test_the_clip_of_adap_follows_what_was_released(train: Train, federation: Federation) -> None:
    result = train(
        federation, adap_dp_fl(tau=2, sampling_rate=0.3, noise_multiplier=0.8, alpha=2.0), rounds=5
    )
    clips = [row.clip for row in result.history]
    assert clips[0] == 1.0
    assert len(set(clips)) > 1
