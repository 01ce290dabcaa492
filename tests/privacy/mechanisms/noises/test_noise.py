"""The noise that is added is the noise that is accounted for."""

import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from dpfl.errors import DpflError
from dpfl.privacy import All, Flat, Gaussian, Poisson, Quantile, Release
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector, radii

SIZE = 200_000
ONE_IN_A_MILLION = 1e-6


def rng(seed=0):
    return np.random.default_rng(seed)


def assert_deviation(values, deviation):
    """A chi-square interval on the sum of squares, and a normal one on the mean."""
    low, high = stats.chi2.interval(1 - ONE_IN_A_MILLION, values.size)
    assert low <= (values**2).sum() / deviation**2 <= high
    assert abs(values.mean()) <= 5 * deviation / math.sqrt(values.size)


def noise_of(release, seed=0, **options):
    return release.add_noise(torch.zeros(SIZE), rng(seed), **options).double().numpy()


@pytest.mark.parametrize(
    "release",
    [
        Release(All(), Flat(1.0), Gaussian(1.1)),
        Release(Poisson(0.1), Flat(0.03), Gaussian(0.7)),
        Release(All(), Flat(250.0), Gaussian(8.0)),
        Release(All(), Quantile(2.0, count_noise=1.0), Gaussian(1.5)),
    ],
)
def test_measured_noise_has_the_stated_deviation(release):
    assert_deviation(noise_of(release), release.stddev())


def test_the_deviation_is_the_multiplier_times_the_level_times_the_largest_weight():
    release = Release(All(), Flat(2.0), Gaussian(1.5))
    assert release.stddev() == 3.0
    assert release.stddev(0.25) == 0.75
    assert_deviation(noise_of(release, largest_weight=0.25), 0.75)


def test_the_noise_is_normal_to_its_tails():
    values = noise_of(Release(All(), Flat(1.0), Gaussian(1.0)), seed=5)
    assert stats.kstest(values, "norm").pvalue > 1e-4
    beyond = np.count_nonzero(np.abs(values) > 3.5)
    low, high = stats.binom.interval(1 - ONE_IN_A_MILLION, SIZE, 2 * stats.norm.sf(3.5))
    assert low <= beyond <= high


def test_coordinates_and_releases_are_uncorrelated():
    release, generator = Release(All(), Flat(1.0), Gaussian(1.0)), rng(6)
    draws = np.stack([release.add_noise(torch.zeros(40), generator).numpy() for _ in range(4000)])
    across = np.corrcoef(draws.T)[np.triu_indices(40, 1)]
    along = [np.corrcoef(draws[:-1, column], draws[1:, column])[0, 1] for column in range(40)]
    assert np.abs(across).max() < 5.5 / math.sqrt(4000)
    assert np.abs(along).max() < 5.5 / math.sqrt(4000)


@pytest.mark.parametrize("parts", [(0.25,) * 4, (0.1, 0.9), (1 / 3,) * 3])
def test_shares_add_up_to_the_whole_noise(parts):
    release = Release(All(), Flat(2.0), Gaussian(1.5))
    total = sum(
        noise_of(release, seed=10 + index, share=share) for index, share in enumerate(parts)
    )
    assert_deviation(total, release.stddev())


def test_a_share_is_a_part_of_the_variance():
    release = Release(All(), Flat(1.0), Gaussian(2.0))
    assert_deviation(noise_of(release, share=0.25), 1.0)


def test_noise_is_added_to_the_sum_and_the_sum_is_kept():
    total = torch.full((1000,), 5.0)
    noisy = Release(All(), Flat(1.0), Gaussian(1.0)).add_noise(total, rng())
    assert (total == 5).all()
    assert noisy.mean() == pytest.approx(5, abs=0.2)
    assert not torch.equal(noisy, total)


def test_without_noise_the_sum_is_returned_as_it_is():
    total = torch.ones(10)
    assert torch.equal(Release(All(), Flat(1.0)).add_noise(total, rng()), total)


@pytest.mark.parametrize("multiplier", [0, -1, math.nan, math.inf])
def test_an_impossible_multiplier_is_refused(multiplier):
    with pytest.raises(DpflError, match="noise multiplier"):
        Gaussian(multiplier)


def test_noise_depends_on_its_generator_only():
    torch.manual_seed(0)
    first = gaussian_vector(100, 1.0, rng(7))
    torch.manual_seed(1)
    assert torch.equal(first, gaussian_vector(100, 1.0, rng(7)))
    assert not torch.equal(first, gaussian_vector(100, 1.0, rng(8)))
    assert first.dtype == torch.float32


class Bits:
    """A generator whose every 64 bits are given."""

    def __init__(self, *words):
        self.words, self.bit_generator = words, self

    def random_raw(self, size):
        return np.resize(np.array(self.words, dtype=np.uint64), size)


def test_the_rarest_bits_are_far_out_and_finite():
    """float32 uniforms would end at 5.8 deviations; these 63 bits at 9.3, which nobody will ever
    see.
    """
    farthest = gaussian_vector(2, 1.0, Bits(0))
    assert float(farthest.norm()) == pytest.approx(math.sqrt(2 * 63 * math.log(2)), rel=1e-5)
    nearest = gaussian_vector(2, 1.0, Bits(2**63))
    assert float(nearest.norm()) == pytest.approx(2**-31.5, rel=1e-5)


@pytest.mark.parametrize("bits", [2**24, 2**32, 2**40, 2**50, 2**62])
def test_the_radius_is_that_of_its_uniform_number(bits):
    pair = gaussian_vector(2, 1.0, Bits(bits))
    assert float(pair.norm()) == pytest.approx(math.sqrt(-2 * math.log(bits / 2**63)), rel=1e-5)


def test_numbers_are_the_sines_and_cosines_of_angles_by_their_bits():
    """32 bits for an angle, from -pi to pi and never 0; in float64 from the same bits, by hand."""
    count = 101
    words = rng(5).bit_generator.random_raw(count + (count + 1) // 2)
    halves = words[count:].view(np.int32)[:count].astype(np.int64)
    angles = math.pi * (halves | 1) / 2**31
    radius = np.sqrt(-2 * np.log(np.abs(words[:count].view(np.int64).astype(float)) / 2**63))
    found = gaussian_vector(2 * count, 3.0, rng(5)).numpy().reshape(2, count)
    np.testing.assert_allclose(
        found, 3.0 * radius * np.stack([np.cos(angles), np.sin(angles)]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("units", [0.5, 1, 40, 5000])
@pytest.mark.parametrize("longest", [0.25, 3.0])
def test_noise_is_refused_below_a_part_in_2_to_the_20_of_the_sum(units, longest):
    release = Release(All(), Flat(2.0), Gaussian(1.0))
    least = 2.0**-20 * units * longest / release.local_stddev
    Release(All(), Flat(2.0), Gaussian(least * 1.0001)).check_not_absorbed(units, longest)
    with pytest.raises(DpflError, match=f"sum of {units:g} clipped units; raise it above"):
        Release(All(), Flat(2.0), Gaussian(least * 0.9999)).check_not_absorbed(units, longest)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 2**15 - 1, 2**15, 2**15 + 1, 3 * 2**15 + 7])
def test_any_number_of_coordinates_has_noise_of_its_own(size):
    values = gaussian_vector(size, 2.0, rng(3)).numpy()
    assert values.shape == (size,)
    assert np.unique(values).size >= 0.99 * size
    if size > 100:
        assert_deviation(values.astype(float), 2.0)


MOST = 2**63


class TestNoNumberWithoutNoise:
    """Float32 rounds a uniform to 1 once in 2^25, and its radius to 0 with it: both numbers of the
    pair had no noise.
    """

    @pytest.mark.parametrize("word", [MOST, MOST - 1, MOST + 1, MOST - 2**38, 2**64 - 1, 1, 0])
    def test_of_no_bits(self, word):
        assert 0 < radii(np.array([word], np.uint64))[0] < 9.4
        assert np.count_nonzero(gaussian_vector(64, 1.0, Bits(word))) == 64

    def test_the_radius_is_that_of_its_bits_on_both_sides_of_the_change(self):
        border = int((1 - 2.0**-10) * MOST)
        words = [
            2**30,
            2**62,
            border - 2**51,
            border + 2**51,
            MOST - 2**40,
            MOST - 2**20,
            MOST + 2**20,
            MOST + 2**51,
        ]
        with mpmath.workdps(40):
            uniform = [mpmath.mpf(min(word, 2**64 - word)) / MOST for word in words]
            exact = [float(mpmath.sqrt(-2 * mpmath.log(u))) for u in uniform]
        assert radii(np.array(words, np.uint64)) == pytest.approx(np.array(exact), rel=1e-4)

    def test_the_smallest_radii_are_as_rare_as_they_should_be(self):
        """P(radius <= r) = 1 - exp(-r^2 / 2): below the step of float32 there was nothing but 0."""
        lacking = np.arange(0, 2**40, 2**20)
        found = radii(np.uint64(MOST) - lacking.astype(np.uint64))
        np.testing.assert_allclose(found, np.sqrt(2 * (lacking + 0.5) / MOST), rtol=1e-3)
        assert len(np.unique(found)) > 0.9 * len(lacking)


@pytest.mark.parametrize("deviation", [0.0, 1e-46, 1e-31, 1e31, math.inf, math.nan])
def test_a_deviation_that_float32_rounds_away_is_refused(deviation):
    """float32 of 1e-46 is 0: the release would have no noise, and be accounted for as one that
    has.
    """
    with pytest.raises(DpflError, match="too small or too large for float32"):
        gaussian_vector(4, deviation, rng())


@dataclass(frozen=True)
class Level(Flat):
    """A clip that checks nothing."""

    def __post_init__(self) -> None: ...


def test_a_release_whose_deviation_underflows_is_refused_and_not_left_without_noise():
    tiny = Release(All(), Level(5e-324), Gaussian(1e-15))
    assert tiny.stddev() == 0
    with pytest.raises(DpflError, match="too small or too large for float32"):
        tiny.add_noise(torch.zeros(3), rng())
