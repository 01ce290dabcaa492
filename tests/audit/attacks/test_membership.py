"""Membership inference: its ceiling, its rates, and its success on an overfitted model."""

import math

import numpy as np
import pytest
import torch

from dpfl.audit.attacks.membership import (
    RATES,
    ceiling,
    confidences,
    likelihood_ratio,
    loss_threshold,
    roc,
)
from dpfl.engines import one_thread


def test_the_ceiling_is_that_of_the_definition() -> None:
    assert ceiling(0.01, 1.0, 1e-5) == pytest.approx(math.e * 0.01 + 1e-5)
    assert ceiling(0.5, 1.0, 0.0) == pytest.approx(1 - 0.5 / math.e)
    assert ceiling(0.001, 0.0, 0.0) == pytest.approx(0.001)
    assert ceiling(0.001, math.inf, 0.0) == 1.0
    assert ceiling(0.001, 800.0, 1e-5) == 1.0


def test_rates_are_read_at_thresholds_that_let_few_of_the_others_through() -> None:
    others = np.arange(1000.0)
    members = np.full(1000, 989.5)
    found = roc("attack", members, others, 1.0, 1e-5)
    assert found.rates == {0.001: 0.0, 0.01: 1.0, 0.1: 1.0}
    assert set(found.ceilings) == set(RATES)


def test_a_rate_above_its_ceiling_says_what_that_means() -> None:
    rng = np.random.default_rng(0)
    below = roc("attack", rng.standard_normal(400) - 5, rng.standard_normal(400), 1.0, 1e-5)
    assert "above" not in below.text
    few = roc("attack", np.array([3.0, *np.zeros(99)]), np.zeros(100), 1.0, 1e-5)
    assert few.rates[0.001] > few.ceilings[0.001]
    assert few.text.endswith(
        "above the ceiling, as chance allows with 100 members and 100 others: this refutes nothing"
    )
    other = roc("attack", rng.standard_normal(1000) + 5, rng.standard_normal(1000), 1.0, 1e-5)
    assert other.beyond == RATES
    assert "or the epsilon does not hold" in other.text


def overfitted(x: torch.Tensor, y: torch.Tensor, seed: int) -> torch.nn.Module:
    torch.default_generator.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))
    optimiser = torch.optim.Adam(module.parameters(), 0.01)
    for _ in range(100):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimiser.step()
    return module


def test_both_attacks_find_the_members_of_an_overfitted_model() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(600, 20, generator=rng), torch.randint(0, 5, (600,), generator=rng)
    parts = [(x[start : start + 100], y[start : start + 100]) for start in range(0, 600, 100)]
    with one_thread(), torch.random.fork_rng():
        target, *shadows = (
            overfitted(*part, seed) for seed, part in enumerate((parts[0], *parts[2:]))
        )
    for found in (
        loss_threshold(target, parts[0], parts[1], 1.0, 1e-5),
        likelihood_ratio(target, shadows, parts[0], parts[1], 1.0, 1e-5),
    ):
        assert found.rates[0.1] > 0.8 > found.ceilings[0.1]
    assert np.isfinite(confidences(target, *parts[0])).all()
