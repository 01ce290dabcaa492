"""ALS-DPFL: adaptive local steps inside epsilon, and what its published form leaks."""

from __future__ import annotations

import math

from dpfl.algorithms import als_dpfl
from dpfl.data import Federation
from tests.algorithms.checks import (
    Train,
    assert_raw_values_tell_neighbours_apart,
    assert_steps_adapt,
)


def test_steps_adapt_and_end_with_the_privacy_budget(train: Train, federation: Federation) -> None:
    algorithm = als_dpfl(sampling_rate=0.2, noise_multiplier=1.5, rate=0.2)
    assert_steps_adapt(train, federation, algorithm)


def test_estimates_from_public_clients_keep_a_proof(train: Train, crowd: Federation) -> None:
    algorithm = als_dpfl(estimates="public", sampling_rate=0.5, noise_multiplier=2.0, rate=0.2)
    result = train(crowd, algorithm, rounds=2, accountant="rdp")
    assert result.privacy.proven < math.inf


def test_raw_values_of_neighbours_differ_and_so_does_their_tau() -> None:
    assert_raw_values_tell_neighbours_apart(als_dpfl("published", sampling_rate=1.0))
