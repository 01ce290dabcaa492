"""Sums are opened of enough clients, or not at all; and what is opened is what clients sent."""

from __future__ import annotations

import numpy as np
import pytest

from dpfl.privacy import Flat, Gaussian, Poisson, Release
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.secagg import RepeatSum
from dpfl.server.aggregation.round_sum import RoundSum, SimulatedMaskedSum, add_integers, open_sum

SHARED = NoiseShares(4, 1)
"""A sum of four clients or more, one of whom may collude."""


def numbers(clients: int) -> dict[int, np.ndarray]:
    return {client: np.full(3, client + 1, np.uint32) for client in range(clients)}


@pytest.mark.parametrize("clients", [0, 1, 2, 3])
def test_fewer_than_the_least_number_of_clients_are_not_summed(clients):
    """Fault: one client fewer than the noise is for was opened."""
    asked, lost = [], []
    sent = numbers(clients)
    assert open_sum(sent, SHARED, lambda: asked.append(1), "round 7", lost) is None
    assert not asked, "the sum is not even asked for"
    assert lost == [f"round 7: {clients} clients are left of 4, so nothing was opened"]


@pytest.mark.parametrize("clients", [4, 5])
def test_enough_clients_are_summed(clients):
    lost: list[str] = []
    total = open_sum(
        numbers(clients), SHARED, lambda: add_integers(0, numbers(clients)), "round 7", lost
    )
    assert total is not None
    assert total.tolist() == [clients * (clients + 1) // 2] * 3
    assert not lost


def test_a_sum_that_the_protocol_does_not_open_is_said():
    def fails() -> None:
        raise RepeatSum("a mask is missing")

    lost: list[str] = []
    assert open_sum(numbers(4), SHARED, fails, "round 7", lost) is None
    assert lost == ["round 7: a mask is missing"]


def test_the_protocol_itself_opens_nothing_of_fewer():
    """A server that leaves its own check out gets nothing more."""
    add = SimulatedMaskedSum("run", [f"client-{number}" for number in range(5)], SHARED)
    for clients in (1, 2, 3):
        with pytest.raises(
            RepeatSum, match=f"Only {clients} clients sent their numbers, of 4 needed"
        ):
            add(0, numbers(clients))
    assert add(0, numbers(4)).tolist() == [10] * 3


def test_every_attempt_at_a_round_has_masks_of_its_own():
    add = SimulatedMaskedSum("run", [f"client-{number}" for number in range(5)], SHARED)
    assert [add(3, numbers(5)).tolist() for _ in range(3)] == [[15] * 3] * 3


def test_clients_scales_and_bounds_follow_weights_over_what_is_drawn():
    """By hand: weights 1/2, 1/4, 1/4 over 0.1 times 100, 50 and 25 samples are 0.05, 0.05 and 0.1;
    the largest is the unit.
    """
    import torch

    release = Release(Poisson(0.1), Flat(2.0), Gaussian(1.0), noise_shares=SHARED)
    asked = RoundSum.of_steps(release, torch.tensor([0.5, 0.25, 0.25]), [100, 50, 25], rate=0.3)
    assert asked.scales == pytest.approx((0.5, 0.5, 1.0))
    assert asked.factor == pytest.approx(-0.3 * 0.1)
    assert asked.bound == 2.0 * 100
    assert asked.terms(1).weight == pytest.approx(0.5)
    assert asked.terms(1).clients == 3
