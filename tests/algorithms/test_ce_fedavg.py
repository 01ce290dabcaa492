"""CE-FedAvg learns with either clip, and proves nothing."""

from __future__ import annotations

import pytest

from dpfl.algorithms import (
    Algorithm,
    ce_fedavg,
)
from dpfl.data import Federation
from tests.algorithms.checks import Train, assert_nothing_proven


@pytest.mark.parametrize(
    "algorithm",
    [ce_fedavg(tau=8, clip=2.0), ce_fedavg(tau=8, clip=8.0, clipping="model")],
    ids=["difference", "model"],
)
def test_it_learns_and_proves_nothing(
    train: Train, federation: Federation, algorithm: Algorithm
) -> None:
    assert_nothing_proven(train(federation, algorithm, rounds=8))
