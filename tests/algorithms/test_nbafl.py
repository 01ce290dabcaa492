"""NbAFL clips models and adds noise both ways as published, and on the way up if sound."""

from __future__ import annotations

import math

import pytest
import torch

from dpfl.algorithms import nbafl
from dpfl.data import Federation
from tests.algorithms.checks import Train


def test_nbafl_clips_models_and_adds_noise_both_ways(train: Train, federation: Federation) -> None:
    published = nbafl(
        "published", total_epsilon=8.0, samples=250, clients=4, rounds=8, exposures=1, clip=6.0
    )
    c = math.sqrt(2 * math.log(1.25e5))
    assert published.updates.stddev() == pytest.approx(c * 2 * 6.0 / (250 * 8.0))
    assert published.server.noise == pytest.approx(
        2 * c * 6.0 * math.sqrt(8**2 - 4) / (250 * 4 * 8.0)
    )
    assert published.claim.epsilon({published.stated_event(0): 1}, 1e-5) == 8.0
    sound = nbafl(noise_multiplier=1.0, clip=6.0)
    assert sound.updates.stddev() == pytest.approx(12.0)
    assert sound.server.noise == 0.0
    result = train(federation, nbafl(noise_multiplier=1e-4, clip=0.5), rounds=2)
    vector = torch.cat([parameter.detach().flatten() for parameter in result.module.parameters()])
    assert float(vector.norm()) < 0.55, "a mean of clipped models"
