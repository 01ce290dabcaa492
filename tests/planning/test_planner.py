"""Noise for iterations, iterations for noise, and epsilon for both."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dpfl.algorithms import auto, fedavg, fedavg_dp
from dpfl.errors import DpflError
from dpfl.planning.planner import (
    afford,
    planned_rate,
    with_planned_noise,
    with_planned_rate,
)
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


SIZES = (100, 300, 600)


def test_the_planned_rate_is_where_noise_moves_the_model_by_its_walk() -> None:
    assert planned_rate(15.0, 0.1, 400, 25) == 1.5
    assert planned_rate(15.0, 0.1, 400, 25, largest=0.7) == 0.7
    algorithm, budget = auto(noise_multiplier=2.0, sampling_rate=0.1), Budget(rounds=50)
    planned = with_planned_rate(algorithm, budget, SIZES, 400)
    walk, steps = algorithm.local.optimiser.walk, algorithm.releases_in(50)
    stddev = algorithm.samples.local_stddev * math.sqrt(3) / (0.1 * sum(SIZES))
    assert planned.local.optimiser.rate == planned_rate(walk, stddev, 400, steps)


def test_a_rate_is_planned_by_the_number_that_all_divide_by() -> None:
    """Steps of half the divisor have twice the noise, whatever the clients have."""
    algorithm, budget = auto(noise_multiplier=2.0, sampling_rate=0.1), Budget(rounds=50)
    rates = [
        with_planned_rate(
            replace(algorithm, samples=replace(algorithm.samples, divisor=divisor)),
            budget,
            (200,) * 3,
            400,
        ).local.optimiser.rate
        for divisor in (None, 20.0, 10.0)
    ]
    assert rates[0] == rates[1] == pytest.approx(2 * rates[2], rel=0.01)
