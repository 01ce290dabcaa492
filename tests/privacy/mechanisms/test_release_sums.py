"""A count beside a vector in a secure sum: both together move as far as the noise is for, and no
farther.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dpfl.models import Layout
from dpfl.privacy import Gaussian, Poisson, Quantile, Release
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.server.aggregation.round_sum import RoundSum, add_integers

CASES = [(1.0, 4.0, 1.0), (0.5, 0.6, 2.0), (2.0, 1.01, 0.3), (1.0, 100.0, 5.0)]
"""Noise multiplier, noise of the count, level of the clip."""


def made(z: float, count_noise: float, level: float, shared: NoiseShares | None = None) -> Release:
    return Release(
        Poisson(0.5),
        Quantile(level, count_noise=count_noise),
        Gaussian(z),
        noise_shares=shared or NoiseShares(8, 1),
    )


def longest(level: float) -> torch.Tensor:
    return torch.tensor([0.6, 0.0, -0.8]) * level


@pytest.mark.parametrize(("z", "count_noise", "level"), CASES)
@pytest.mark.parametrize("inside", [True, False])
def test_vector_and_count_move_by_the_noise_over_the_multiplier(z, count_noise, level, inside):
    """By |v|^2 / sigma^2 + (1/2)^2 / sigma_b^2 = 1 / z^2, with every constant written out. Fault: a
    count that moves by 1.
    """
    release = made(z, count_noise, level)
    sent = release.into_sum(longest(level), inside).double().numpy()
    sigma = level / math.sqrt(z**-2 - (2 * count_noise) ** -2)
    assert sent.shape == (4,)
    assert np.linalg.norm(sent) / sigma == pytest.approx(1 / z, rel=1e-6)
    assert abs(sent[-1]) / sigma == pytest.approx(0.5 / count_noise, rel=1e-6)
    assert (sent[-1] > 0) == inside
    assert release.stddev() == pytest.approx(sigma)
    assert release.noise_multiplier == z


@pytest.mark.parametrize(("z", "count_noise", "level"), CASES)
def test_the_shares_that_a_server_cannot_know_have_the_noise_for_it(z, count_noise, level):
    """Seven of eight survivors do not collude; with the coordinates' noise as it is added, not as
    it is stated.
    """
    release = made(z, count_noise, level)
    asked = RoundSum.of_updates(release, 10)
    moved = np.linalg.norm(release.into_sum(longest(level), True).double().numpy())
    assert math.sqrt(7) * asked.integer_sum.share / moved >= z * (1 - 1e-6)
    assert abs(float(release.into_sum(longest(level), True)[-1])) <= asked.bound, (
        "the bound of a number holds for the count too"
    )


def test_who_was_not_drawn_moves_nothing():
    release = made(1.0, 4.0, 1.0)
    assert not release.into_sum(torch.zeros(3)).any()


def test_a_server_reads_the_count_that_clients_sent():
    """Five inside and three outside: a sum of b - 1/2 of 1, to the noise that is stated."""
    layout = Layout(("weight",), ((3,),), (0,), trainable=3, size=3)
    release = made(1.0, 0.6, 1.0, NoiseShares(8, 0))
    asked = RoundSum.of_updates(release, 8)
    found = []
    for trial in range(400):
        rows = [release.into_sum(longest(1.0), client < 5).double().numpy() for client in range(8)]
        sent = {
            client: asked.integer_sum.numbers(row, np.random.default_rng([trial, client]))
            for client, row in enumerate(rows)
        }
        found.append(asked.update(sent, add_integers, 0, layout)[1])
    assert np.mean(found) == pytest.approx(1.0, abs=5 * 0.6 / math.sqrt(400))
    assert np.std(found) == pytest.approx(0.6, rel=0.15)
