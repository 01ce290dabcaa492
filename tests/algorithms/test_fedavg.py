"""FedAvg learns, and says that its epsilon is unbounded."""

from __future__ import annotations

import pytest

from dpfl.algorithms import fedavg
from dpfl.data import Federation
from dpfl.errors import DpflError
from tests.algorithms.checks import Train, assert_nothing_proven

ALGORITHMS_WITHOUT_NOISE = {
    "sgd": fedavg(tau=5),
    "momentum": fedavg(tau=5, optimiser="momentum", rate=0.02),
    "adam": fedavg(tau=5, optimiser="adam", rate=0.01),
    "cohort": fedavg(tau=5, cohort=2, weights="uniform"),
    "server momentum": fedavg(tau=5, server_momentum=0.5, server_rate=0.7),
}


@pytest.mark.parametrize("name", ALGORITHMS_WITHOUT_NOISE)
def test_it_learns_and_proves_nothing(train: Train, federation: Federation, name: str) -> None:
    assert_nothing_proven(train(federation, ALGORITHMS_WITHOUT_NOISE[name], rounds=8))


def test_training_that_overflows_everywhere_is_an_error_and_not_a_finished_run(
    train: Train, federation: Federation
) -> None:
    with pytest.raises(DpflError):
        train(federation, fedavg(tau=3, rate=1e30), rounds=3)
