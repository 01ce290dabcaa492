"""MOON learns and proves nothing; without its term it is FedAvg."""

from __future__ import annotations

import pytest
import torch

import dpfl
from dpfl.algorithms import (
    Algorithm,
    fedavg,
    moon,
)
from dpfl.data import Federation
from tests.algorithms.checks import Train, assert_nothing_proven


@pytest.mark.parametrize(
    "algorithm", [moon(tau=5), moon(tau=5, cohort=2, mu=5.0)], ids=["all", "cohort"]
)
def test_it_learns_and_proves_nothing(
    train: Train, federation: Federation, algorithm: Algorithm
) -> None:
    assert_nothing_proven(train(federation, algorithm, rounds=8))


def test_moon_without_its_term_is_fedavg_and_with_it_is_not(
    train: Train, federation: Federation
) -> None:
    plain = train(federation, fedavg(tau=4), rounds=4)
    without = train(federation, moon(tau=4, mu=0.0), rounds=4, out="without")
    first = train(federation, moon(tau=4, mu=5.0), rounds=1, out="first")
    with_it = train(federation, moon(tau=4, mu=5.0), rounds=4, out="with")
    assert apart(without, plain) < 1e-5
    assert apart(with_it, plain) > 1e-3
    assert apart(first, train(federation, fedavg(tau=4), rounds=1, out="one")) < 1e-5, (
        "no last model, no pull"
    )


def apart(one: dpfl.Result, other: dpfl.Result) -> float:
    vectors = [
        torch.cat([p.detach().flatten() for p in result.module.parameters()])
        for result in (one, other)
    ]
    return float((vectors[0] - vectors[1]).abs().max())
