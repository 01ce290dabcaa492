"""Dyn-DP-FedAvg: the schedule of Dynamic DP-SGD, over the rounds of DP-FedAvg."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpfl.algorithms import (
    ali_dpfl,
    dyn_dp_fedavg,
    fedavg_dp,
    ldp_fl,
)
from dpfl.errors import DpflError
from dpfl.server.schedules import AdaptiveSchedule, DecaySchedule


def test_clip_norm_and_noise_fall_as_in_dynamic_dp_sgd() -> None:
    """C_t = C_0 rho_c^(t/T) in every round; the noise multiplier falls in the phases."""
    algorithm = dyn_dp_fedavg(cohort=5, clip=2.0, noise_multiplier=3.0, phases=4)
    algorithm = algorithm.for_rounds(8, 20)
    releases = [algorithm.schedule.now(algorithm.clients, round, {}) for round in range(8)]
    clips = [release.clip.clip_norm for release in releases]
    assert clips == pytest.approx([2.0 * 0.3 ** (round / 8) for round in range(8)])
    multipliers = [release.noise_multiplier for release in releases]
    assert len(set(multipliers)) == 4
    assert multipliers == sorted(multipliers, reverse=True)
    assert sum(algorithm.spending(8, 20).values()) == 8


def test_a_schedule_needs_a_flat_clip_and_fixed_steps() -> None:
    for algorithm in (
        ali_dpfl(),
        ldp_fl(noise_multiplier=1.0),
        fedavg_dp(clipping="per-layer", noise_multiplier=1.0),
    ):
        with pytest.raises(DpflError, match="A schedule needs"):
            replace(algorithm, schedule=DecaySchedule())
    with pytest.raises(DpflError, match="needs noise in their steps"):
        replace(dyn_dp_fedavg(noise_multiplier=1.0), schedule=AdaptiveSchedule())
