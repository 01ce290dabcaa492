"""Noise on a grid: normal, exact, the same numbers for every sum, and paid for where rounding moves
the sum.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.errors import DpflError
from dpfl.privacy import All, Flat, Gaussian, Keyed, Quantile, Release, SystemEntropy
from dpfl.privacy.mechanisms.noises.haar_release import HaarNoise
from dpfl.privacy.mechanisms.noises.secure_noise import (
    GRID_BITS,
    SecureGaussian,
    grid_step,
    standard_normal,
)
from dpfl.privacy.queries.histogram import private_histogram
from dpfl.privacy.queries.mean import MeanQuery
from tests.privacy.mechanisms.noises.test_noise import ONE_IN_A_MILLION, assert_deviation
from tests.privacy.queries.subject import RowSubject

SIZE = 200_000

PLAIN = Release(All(), Flat(1.0), Gaussian(1.0))
SECURE = PLAIN.with_secure_noise()


def rng(seed=0):
    return Keyed(seed).generator("noise")


def larger(release, size):
    """The deviation that is owed to a sum of this size once it is rounded."""
    deviation = release.stddev()
    return deviation + release.noise_multiplier * grid_step(deviation) * math.sqrt(size)


@pytest.mark.parametrize(
    ("level", "multiplier"), [(1.0, 1.1), (0.03, 0.7), (250.0, 8.0), (1e-6, 1.0)]
)
def test_measured_noise_has_the_stated_deviation(level, multiplier):
    release = Release(All(), Flat(level), Gaussian(multiplier)).with_secure_noise()
    values = release.add_noise(torch.zeros(SIZE), rng()).double().numpy()
    assert_deviation(values, larger(release, SIZE))


def test_the_noise_is_normal_to_its_tails():
    values = SECURE.add_noise(torch.zeros(SIZE), rng(5)).double().numpy() / larger(SECURE, SIZE)
    assert stats.kstest(values, "norm").pvalue > 1e-4
    assert abs(stats.kurtosis(values)) < 5 * math.sqrt(24 / SIZE)
    assert abs(stats.skew(values)) < 5 * math.sqrt(6 / SIZE)
    low, high = stats.binom.interval(1 - ONE_IN_A_MILLION, SIZE, 2 * stats.norm.sf(3.5))
    assert low <= np.count_nonzero(np.abs(values) > 3.5) <= high


def test_pairs_are_uncorrelated_in_value_and_in_size():
    values = SECURE.add_noise(torch.zeros(SIZE), rng(6)).double().numpy()
    for lag in (1, 2, 2**13, 2**14):
        one, other = values[:-lag], values[lag:]
        assert abs(np.corrcoef(one, other)[0, 1]) < 5.5 / math.sqrt(SIZE)
        assert abs(np.corrcoef(one**2, other**2)[0, 1]) < 5.5 / math.sqrt(SIZE)


def test_the_normal_numbers_are_those_of_their_bits():
    """Against 150 bits: the error that the docstring states, also where the radius is large."""
    bits = np.random.default_rng(0).integers(0, 2**64, 800, dtype=np.uint64)
    bits[:100] >>= np.uint64(40)
    found = standard_normal(bits)
    with mpmath.workprec(150):
        for index in range(400):
            radius = mpmath.sqrt(-2 * mpmath.log((int(bits[index]) + 1) * mpmath.mpf(2) ** -64))
            angle = int(bits[400 + index].view(np.int64)) * mpmath.pi * mpmath.mpf(2) ** -63
            bound = float(radius + 1) * 2.0**-50
            assert abs(float(radius * mpmath.cos(angle) - mpmath.mpf(float(found[index])))) < bound
            assert (
                abs(float(radius * mpmath.sin(angle) - mpmath.mpf(float(found[400 + index]))))
                < bound
            )


def test_the_rarest_bits_are_far_out_and_finite():
    farthest = standard_normal(np.array([0, 0], dtype=np.uint64))
    assert farthest[0] == pytest.approx(math.sqrt(2 * 64 * math.log(2)))
    assert np.isfinite(standard_normal(np.array([0, 2**63], dtype=np.uint64))).all()
    assert np.abs(standard_normal(np.array([2**64 - 1, 5], dtype=np.uint64))).max() == 0


@given(st.floats(1e-12, 1e12))
def test_the_grid_is_a_power_of_two_that_the_deviation_determines(deviation):
    unit = grid_step(deviation)
    assert math.frexp(unit)[0] == 0.5
    assert deviation * 2.0 ** -(GRID_BITS + 1) < unit <= deviation * 2.0**-GRID_BITS


def on_grid(values, unit):
    steps = values.double().numpy() / unit
    return bool((steps == np.rint(steps)).all())


def test_every_sum_reaches_the_same_numbers():
    """Whatever the sum, each released number is a whole multiple of the grid; plain noise leaves
    its sum's low bits in it.
    """
    unit = grid_step(SECURE.stddev())
    for total in (
        torch.zeros(5000),
        torch.full((5000,), 0.1),
        torch.randn(5000, generator=torch.Generator().manual_seed(0)),
    ):
        assert on_grid(SECURE.add_noise(total, rng(1)), unit)
    assert not on_grid(PLAIN.add_noise(torch.full((5000,), 0.1), rng(1)), unit)


def test_the_released_number_depends_on_the_rounded_sum_alone():
    unit = grid_step(SECURE.stddev())
    total = torch.arange(1000) * 0.01
    rounded = (total.double() / unit).round() * unit
    assert not torch.equal(total.double(), rounded)
    assert torch.equal(SECURE.add_noise(total, rng(2)), SECURE.add_noise(rounded.float(), rng(2)))
    noise = SECURE.add_noise(torch.zeros(1000), rng(2)).double()
    assert torch.equal(SECURE.add_noise(total, rng(2)), (rounded + noise).float())


def test_where_rounding_moves_the_sum_the_noise_is_larger():
    release, size = Release(All(), Flat(1.0), Gaussian(100.0)).with_secure_noise(), 1_000_000
    assert larger(release, size) > 1.15 * release.stddev()
    assert_deviation(
        release.add_noise(torch.zeros(size), rng(3)).double().numpy(), larger(release, size)
    )


def test_a_key_repeats_the_noise_and_the_systems_entropy_never_does():
    total = torch.zeros(100)
    assert torch.equal(SECURE.add_noise(total, rng(7)), SECURE.add_noise(total, rng(7)))
    assert not torch.equal(SECURE.add_noise(total, rng(7)), SECURE.add_noise(total, rng(8)))
    fresh = SystemEntropy().generator
    assert not torch.equal(
        SECURE.add_noise(total, fresh("noise")), SECURE.add_noise(total, fresh("noise"))
    )


def test_the_steps_of_a_round_have_noise_of_their_own():
    generator = rng(9)
    first, second = (SECURE.add_noise(torch.zeros(1000), generator) for _ in range(2))
    assert (first == second).float().mean() < 0.01
    assert abs(np.corrcoef(first, second)[0, 1]) < 5.5 / math.sqrt(1000)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 2**14 - 1, 2**14, 2**14 + 1])
def test_any_number_of_coordinates_has_noise_of_its_own(size):
    values = SECURE.add_noise(torch.zeros(size), rng(3)).numpy()
    assert values.shape == (size,)
    assert np.unique(values).size >= 0.97 * size


def test_the_sum_is_kept():
    total = torch.full((1000,), 5.0)
    assert SECURE.add_noise(total, rng()).mean() == pytest.approx(5, abs=0.2)
    assert (total == 5).all()


def test_quantile_clipping_has_all_of_its_noise_on_grids_and_pays_for_its_rounding():
    clip = Quantile(2.0, count_noise=1.0)
    release, size = Release(All(), clip, Gaussian(1.5)).with_secure_noise(), 10_000
    deviation, share = release.stddev(), clip.vector_multiplier(1.5)
    values = release.add_noise(torch.full((size,), 0.1), rng(11)).double().numpy()
    assert on_grid(torch.from_numpy(values), grid_step(deviation))
    assert_deviation(values - 0.1, deviation + share * grid_step(deviation) * math.sqrt(size))
    counts = [release.add_noise_to_count(0.5, rng(seed)) for seed in range(20)]
    assert on_grid(torch.tensor(counts, dtype=torch.float64), grid_step(1.0))
    assert not on_grid(
        torch.tensor([Release(All(), clip, Gaussian(1.5)).add_noise_to_count(0.5, rng(3))]),
        grid_step(1.0),
    )


@pytest.mark.parametrize("value", [0.0, 0.1, 7.77])
def test_a_single_number_is_on_the_grid_of_its_deviation_with_the_deviation_that_is_paid_for(value):
    unit = grid_step(SECURE.stddev(2.0))
    found = np.array(
        [SECURE.add_noise_to_number(value, rng(seed), largest_weight=2.0) for seed in range(3000)]
    )
    assert on_grid(torch.from_numpy(found), unit)
    assert_deviation(found - value, 2.0)


def test_a_histogram_and_a_mean_are_on_grids_with_the_deviation_that_is_paid_for():
    counts = np.full(5000, 1000.0)
    noisy = private_histogram(counts, 2.0, rng(4), secure=True) * 5000 * 1000
    assert_deviation(noisy / noisy.mean() * 1000 - 1000, 2.0)
    query = MeanQuery(3.0).with_secure_noise()
    sums = torch.from_numpy(
        query.answer(RowSubject(torch.full((10, 4096), 0.3), 1), rng(5))
    ).double()
    assert on_grid(sums, grid_step(3.0 * 64))
    assert_deviation(sums.numpy() - sums.numpy().mean(), 3.0 * 64 + 3.0 * grid_step(3.0 * 64) * 64)
    assert query.event == MeanQuery(3.0).event


def test_it_costs_what_plain_noise_costs():
    assert SECURE.event(100) == PLAIN.event(100)
    assert isinstance(SECURE.with_noise(2.0).noise, SecureGaussian)


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (Release(All(), Flat(1.0), Gaussian(1.0), shared_by=3), "share"),
        (Release(All(), Flat(1.0), HaarNoise(1.0)), "Haar"),
    ],
)
def test_noise_without_such_a_form_is_refused(release, words):
    with pytest.raises(DpflError, match=words):
        release.with_secure_noise()
