"""Scores of random draws: fair ones stay below the limit, and noise that comes again exceeds it."""

import numpy as np
import pytest

from dpfl.audit.checks.randomness_checks import (
    TOO_FAR,
    count_score,
    largest_correlation,
    squares_score,
)


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
