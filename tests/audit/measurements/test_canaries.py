"""Canaries at real clients: how often they are drawn, and how far they move an update."""

from dataclasses import replace

import numpy as np
import pytest

from dpfl.algorithms import ali_dpfl, fedavg_dp, ldp_fl
from dpfl.audit.measurements.canaries import (
    DECLARED_SIZE,
    WITH,
    WITHOUT,
    many_canaries,
    one_canary,
    silent,
)
from dpfl.privacy import FixedSize, Poisson
from dpfl.server.algorithm import Algorithm

STEPS = fedavg_dp(noise_multiplier=1.0, tau=1)


def sampled(sampling: Poisson | FixedSize) -> Algorithm:
    assert STEPS.samples is not None
    return replace(STEPS, samples=replace(STEPS.samples, sampling=sampling))


def test_the_rate_is_that_of_the_sampling_where_noise_is_in_steps() -> None:
    assert one_canary(sampled(Poisson(0.25))).rate == 0.25
    replaced = one_canary(sampled(FixedSize(4)))
    assert replaced.rate == 4 / len(replaced.test_bed.clients[WITH])
    assert one_canary(ldp_fl(noise_multiplier=1.0)).rate == 1.0


def test_a_policy_that_adapts_has_one_step() -> None:
    assert one_canary(fedavg_dp(noise_multiplier=1.0, tau=3)).steps == 3
    assert one_canary(ali_dpfl(noise_multiplier=1.0)).steps == 1


def test_neighbours_lack_the_canary_or_have_another_in_its_place() -> None:
    absent, replaced = one_canary(sampled(Poisson(0.25))), one_canary(sampled(FixedSize(4)))
    sizes = [[len(rows) for rows in site.test_bed.clients] for site in (absent, replaced)]
    assert sizes[0][WITH] == sizes[0][WITHOUT] + 1
    assert sizes[1][WITH] == sizes[1][WITHOUT]


def test_a_canary_moves_the_sum_by_the_clip_norm() -> None:
    site = one_canary(sampled(Poisson(0.25)))
    release = site.algorithm.samples
    assert release is not None
    rate = site.algorithm.local.optimiser.rate
    expected = rate * release.clip.clip_norm / DECLARED_SIZE  # where every step draws every sample
    assert float(np.linalg.norm(site.signal())) == pytest.approx(expected, rel=1e-3)


def test_a_silent_task_has_no_noise_and_draws_everybody() -> None:
    task = silent(one_canary(sampled(Poisson(0.25))).task(0, WITH))
    assert task.samples is not None
    assert task.samples.noise is None
    assert task.samples.sampling.expected_size(7) == 7


def test_many_canaries_have_pixels_of_their_own() -> None:
    site = many_canaries(STEPS, 5, np.array([True, False, True, True, False]))
    assert site.test_bed.clients[WITH].tolist() == [0, 2, 3]
    assert site.test_bed.clients[WITHOUT].tolist() == [0, 1, 2, 3, 4]
    assert (site.test_bed.x != 0).sum(1).tolist() == [1] * 5
