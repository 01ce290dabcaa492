from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, kstest

from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noises.noise_shares import MIN_GRID_STEPS, NoiseShares


class NoNoise(np.random.Generator):
    """Not used for noise: the key is fixed, so that the same draw is added twice."""

    def bytes(self, length: int) -> bytes:
        return bytes(length)


def fixed() -> NoNoise:
    return NoNoise(np.random.PCG64(0))


def shares(whole: IntegerSum, vectors: list[np.ndarray], seed: int = 0) -> np.ndarray:
    drawn = [
        whole.numbers(vector, np.random.default_rng([seed, i])) for i, vector in enumerate(vectors)
    ]
    return whole.total(np.sum(drawn, axis=0, dtype=whole.kind))


@pytest.mark.parametrize(
    ("survivors", "colluders", "summed", "variances"),
    [(10, 0, 10, 1.0), (8, 0, 8, 1.0), (8, 1, 8, 8 / 7)],
)
def test_the_variance_of_the_sum_is_what_is_stated(survivors, colluders, summed, variances):
    """Ten clients, of whom `summed` survive: noise of deviation 1 without the colluders' shares, by
    a chi-square test.
    """
    whole = IntegerSum(NoiseShares(survivors, colluders).share(1.0), bound=4.0, clients=10)
    vectors = [
        np.random.default_rng(i).uniform(-1, 1, 40_000).astype(np.float32) for i in range(summed)
    ]
    noise = shares(whole, vectors, seed=survivors + colluders) - np.sum(
        vectors, axis=0, dtype=np.float64
    )
    expected = variances + summed * whole.unit**2 / 12
    low, high = chi2.ppf([1e-4, 1 - 1e-4], len(noise))
    assert low < (noise**2).sum() / expected < high
    assert kstest(noise / math.sqrt(expected), "norm").pvalue > 1e-3
    honest = shares(whole, vectors[colluders:], seed=5) - np.sum(
        vectors[colluders:], axis=0, dtype=np.float64
    )
    assert low < (honest**2).sum() / (1 + whole.unit**2 / 12 * survivors) < high


@given(
    st.floats(1e-6, 1e6),
    st.floats(1e-3, 1e9),
    st.integers(1, 100),
    st.lists(st.floats(-2, 2), min_size=1, max_size=20),
)
@settings(deadline=None)
def test_no_sum_wraps_around_and_none_loses_a_step(share, times, clients, places):
    """Every client at the same end of its bound (or beyond it): the sum is that of the whole
    numbers.
    """
    whole = IntegerSum(share, bound=share * times, clients=clients)
    vector = np.array(places) * whole.bound
    one = whole.numbers(vector, fixed())
    signed = one.view(whole.kind.replace("u", "i")).astype(np.int64)
    assert np.abs(signed).max() * clients <= whole.largest < 2 ** (whole.bits - 1)
    total = np.zeros(len(vector), whole.kind)
    for _ in range(clients):
        total += one
    assert np.array_equal(whole.total(total), (signed * clients).astype(np.float64) * whole.unit)
    assert MIN_GRID_STEPS <= whole.steps < 2 * MIN_GRID_STEPS
    assert math.frexp(whole.unit)[0] == 0.5


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=1, max_size=30))
@settings(deadline=None)
def test_clamping_never_moves_two_vectors_apart_and_rounding_is_of_the_noisy_number(pairs):
    """With the same noise, two vectors within the bound come out as far apart as they are, to one
    step a number.
    """
    whole = IntegerSum(1.0, bound=2.0, clients=3)
    one, other = np.array(pairs).T
    clipped = np.clip(one, -2, 2) - np.clip(other, -2, 2)
    assert np.linalg.norm(clipped) <= np.linalg.norm(one - other) + 1e-12
    apart = whole.total(whole.numbers(one, fixed()) - whole.numbers(other, fixed()))
    assert np.abs(apart - clipped).max() <= whole.unit * (1 + 1e-9)


def test_the_chances_of_whole_numbers_follow_the_number_before_it_is_rounded():
    """A third of a step more or less is told by the mean alone: nothing is rounded before the noise
    is added.
    """
    whole = IntegerSum(1.0, bound=4e6, clients=1)
    for place in (0.0, 3e6):
        vector = np.full(400_000, place + whole.unit / 3)
        found = whole.total(whole.numbers(vector, np.random.default_rng(1))) - place
        assert abs(found.mean() - whole.unit / 3) < 4 / math.sqrt(len(vector))
    spread = (
        IntegerSum(1.0, 1.0, 1).numbers(np.zeros(200_000), np.random.default_rng(2)).view(np.int32)
    )
    assert np.unique(spread % 2, return_counts=True)[1].min() > 99_000


def test_bits_follow_the_bound_and_what_does_not_fit_is_refused():
    assert IntegerSum(1.0, 1000.0, 10).bits == 32
    assert IntegerSum(1.0, 2.0**31, 10).bits == 64
    with pytest.raises(DpflError, match="does not fit into 64 bits"):
        IntegerSum(1.0, 2.0**60, 10)
    for wrong in ((1.0, math.inf, 2), (1.0, 0.0, 2), (1.0, 1.0, 0), (0.0, 1.0, 2)):
        with pytest.raises(DpflError):
            IntegerSum(*wrong)


def test_noise_is_added_to_numbers_of_any_size():
    """Fault: beyond 2^53 steps a sum in float64 swallowed the noise, of a number that fits into 64
    bits, up to all of it.
    """
    whole = IntegerSum(1.0, bound=2.0**57, clients=2)
    near, *far = (
        whole.numbers(np.full(1000, place), fixed()).view(np.int64)
        for place in (0.0, 2.0**50, -(2.0**57))
    )
    for place, found in zip((2**54, -(2**61)), far, strict=True):
        assert (found - place == near).all()


def test_what_is_not_finite_has_its_noise_as_well():
    """Fault: not a number became the least of all whole numbers, whatever the noise."""
    whole = IntegerSum(1.0, 1.0, 3)
    vector = np.array([np.nan, np.inf, -np.inf] * 1000, np.float32)
    found = whole.total(whole.numbers(vector, np.random.default_rng(3))).reshape(-1, 3)
    assert np.abs(found.mean(0) - [0, 1, -1]).max() < 0.15
    assert np.abs(found.std(0) - 1).max() < 0.1
