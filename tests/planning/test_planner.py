"""Noise for iterations, iterations for noise, and epsilon for both."""

from __future__ import annotations

import pytest

from dpfl.algorithms import fedavg, fedavg_dp
from dpfl.errors import DpflError
from dpfl.planning.planner import afford, with_planned_noise
from dpfl.privacy import Budget, Poisson, accountant


def test_two_of_epsilon_noise_and_iterations_give_the_third() -> None:
    bought = afford(epsilon=2.0, noise_multiplier=1.1)
    assert bought.iterations == 716
    assert bought.proven
    assert bought.epsilon <= 2.0 < afford(noise_multiplier=1.1, iterations=717).epsilon
    noise = afford(epsilon=2.0, iterations=716)
    assert noise.noise_multiplier == pytest.approx(1.1, rel=1e-3)
    assert noise.epsilon <= 2.0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"epsilon": 2.0}, "--iterations"),
        ({"noise_multiplier": 1.0}, "two of"),
        ({"noise_multiplier": 1.0, "iterations": 0}, "from 1 to"),
    ],
)
def test_fewer_than_two_are_refused(options: dict[str, float], word: str) -> None:
    with pytest.raises(DpflError, match=word):
        afford(**options)


def test_planned_noise_is_the_least_and_leaves_room_for_what_ledgers_hold() -> None:
    budget, algorithm = Budget(epsilon=2.0, rounds=50), fedavg_dp(sampling_rate=0.1)
    planned = with_planned_noise(algorithm, budget, 4, "rdp")
    event = Poisson(0.1).event(planned.samples.noise.noise_multiplier, 1)
    by = accountant("rdp")
    assert by.epsilon({event: 50}, 1e-5) <= 2.0 < by.epsilon({event: 51}, 1e-5)
    after = with_planned_noise(algorithm, budget, 4, "rdp", {event: 20})
    assert after.samples.noise.noise_multiplier > planned.samples.noise.noise_multiplier
    assert with_planned_noise(fedavg(), budget, 4, "rdp") == fedavg()


def test_noise_cannot_be_planned_without_rounds() -> None:
    with pytest.raises(DpflError, match=r"budget\.rounds"):
        with_planned_noise(fedavg_dp(), Budget(epsilon=2.0), 4, "rdp")
