"""Tests of chance: fair draws stay far from the threshold, and what is not fair is far beyond
it.
"""

import numpy as np
import pytest

from dpfl.audit.noise_check import noises
from dpfl.audit.randomness_checks import TOO_FAR, count_score, largest_correlation, squares_score
from dpfl.audit.sampling_checks import cohorts, fairness
from dpfl.audit.sensitivity_check import movement
from dpfl.privacy import FixedSize, Poisson
from dpfl.privacy.mechanisms.sampling import FixedCohort, Sampling
from tests.audit.systems import system


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


def test_scores_are_standard_normal_and_certain_things_are_certain() -> None:
    rng = np.random.default_rng(0)
    scores = [
        squares_score(float(np.square(rng.standard_normal(500)).sum()), 500) for _ in range(2000)
    ]
    assert np.std(scores) == pytest.approx(1, abs=0.05)
    assert count_score(3, 3, 0) == 0
    assert count_score(4, 3, 0) == np.inf


def test_a_stretch_of_noise_that_comes_again_is_found_at_any_shift_and_with_any_sign() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal(1 << 16), rng.standard_normal(1 << 16)
    assert largest_correlation(one, one) < 6.5
    assert largest_correlation(one, other) < 6.5
    other[20_000:24_000] = -one[3_000:7_000]
    assert largest_correlation(one, other) > TOO_FAR
    one[50_000:54_000] = one[100:4_100]
    assert largest_correlation(one, one) > TOO_FAR


@pytest.mark.parametrize(
    "name",
    ["dp-sgd-wav", "dp-fedavg-wav", "dp-ftrl", "dyn-dp-fedavg", "adap-dp-fl", "nbafl", "auto"],
)
def test_a_sound_system_has_the_noise_that_it_states_for_what_a_unit_moves(name: str) -> None:
    assert noises(system(name, "sound")).faults == ()
    assert movement(system(name, "sound")).faults == ()


def test_cohorts_of_a_fixed_size_are_fair() -> None:
    assert cohorts(FixedCohort(4)).faults == ()
