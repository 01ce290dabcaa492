"""Who is drawn: fair draws stay below the limit, and draws that are not fair exceed it."""

import numpy as np
import pytest

from dpfl.audit.checks.randomness_checks import TOO_FAR
from dpfl.audit.checks.sampling_checks import batches, cohorts, fairness
from dpfl.privacy import FixedSize, Poisson
from dpfl.privacy.mechanisms.sampling import FixedCohort, Sampling
from tests.audit.systems import CONSTANT_DIVISOR


def table(sampling: Sampling, units: int, rng: np.random.Generator, draws: int = 200) -> np.ndarray:
    drawn = np.zeros((draws, units))
    for row in drawn:
        row[sampling.draw(units, rng)] = 1
    return drawn


@pytest.mark.parametrize(("rate", "units"), [(0.015, 800), (0.05, 240), (0.3, 60), (0.9, 60)])
def test_fair_coins_are_taken_for_fair(rate: float, units: int) -> None:
    rng = np.random.default_rng(0)
    scores = [
        score
        for _ in range(200)
        for score in fairness(table(Poisson(rate), units, rng), rate, fixed=False).values()
    ]
    assert max(map(abs, scores)) < 5
    assert np.mean(np.square(scores)) == pytest.approx(1, abs=0.25)


def test_draws_of_one_size_are_fair_as_such_and_not_as_coins() -> None:
    rng = np.random.default_rng(0)
    drawn = table(FixedSize(12), 60, rng)
    assert max(map(abs, fairness(drawn, 0.2, fixed=True).values())) < 5
    assert fairness(drawn, 0.2, fixed=False)["sizes"] < -TOO_FAR
    assert abs(fairness(table(Poisson(0.2), 60, rng), 0.2, fixed=True)["sizes"]) > TOO_FAR


def test_cohorts_of_a_fixed_size_are_fair() -> None:
    assert cohorts(FixedCohort(4)).faults == ()


def test_batches_over_a_constant_divisor_can_be_read_off_updates() -> None:
    assert batches(CONSTANT_DIVISOR).faults == ()
