"""Distances, weights and the private histogram of HW-DPFL."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE
from dpfl.privacy.queries.histogram import distribution, private_histogram
from dpfl.server.aggregation.hellinger import hellinger_distance, hellinger_weights

COUNTS = st.lists(st.lists(st.integers(0, 10_000), min_size=4, max_size=4), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("classes", "expected"), [(1, 0.826905), (2, 0.743496), (3, 0.672516), (10, 0.0)]
)
def test_distance_of_a_few_equal_classes_from_balanced(classes, expected):
    counts = [60] * classes + [0] * (10 - classes)
    assert hellinger_distance(counts) == pytest.approx(expected, abs=5e-7)
    assert hellinger_distance(counts) == pytest.approx(
        math.sqrt(1 - math.sqrt(classes / 10)), abs=1e-9
    )


def test_distance_of_two_large_classes_and_eight_small_ones():
    assert hellinger_distance([230, 230] + [5] * 8) == pytest.approx(0.563973, abs=5e-7)


def test_distance_to_another_reference():
    assert hellinger_distance([3, 1], reference=[6, 2]) == pytest.approx(0, abs=1e-12)
    assert hellinger_distance([1, 0], reference=[0, 5]) == 1
    assert hellinger_distance([[1, 0], [0, 1], [1, 1]], [1, 1]).shape == (3,)


@given(counts=COUNTS, scale=st.integers(1, 50))
def test_distances_lie_between_0_and_1_and_do_not_know_the_size_of_a_client(counts, scale):
    distances = hellinger_distance(counts)
    assert ((distances >= 0) & (distances <= 1)).all()
    assert hellinger_distance(scale * np.array(counts)) == pytest.approx(distances, abs=1e-12)


@given(counts=COUNTS, kind=st.sampled_from(["distance", "similarity"]))
def test_weights_are_shares(counts, kind):
    weights = hellinger_weights(counts, kind)
    assert weights.shape == (len(counts),)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)


def test_published_weights_reward_skew_and_similarity_does_not():
    skewed, mild, balanced = [100, 0, 0, 0], [40, 30, 20, 10], [25, 25, 25, 25]
    published = hellinger_weights([skewed, mild, balanced], "distance")
    assert published[0] > published[1] > published[2] == 0
    similar = hellinger_weights([skewed, mild, balanced])
    assert similar[0] < similar[1] < similar[2]


def test_weights_are_the_printed_quotients():
    rows = [[1, 0], [1, 1], [3, 1]]
    h = hellinger_distance(rows)
    assert hellinger_weights(rows, "distance") == pytest.approx(h / h.sum())
    assert hellinger_weights(rows, "similarity") == pytest.approx((1 - h) / (1 - h).sum())


@pytest.mark.parametrize("rows", [[[10, 10]] * 3, [[7] * 10] * 3, [[1, 1, 1]] * 3])
def test_balanced_clients_count_alike_where_the_paper_divides_by_zero(rows):
    assert hellinger_weights(rows, "distance").tolist() == pytest.approx([1 / 3] * 3)


def test_clients_like_the_reference_up_to_rounding_count_alike():
    reference, rows = [0.1, 0.2, 0.3], [[1, 2, 3], [10, 20, 30], [0.1, 0.2, 0.3]]
    assert 0 < hellinger_distance(rows, reference).max() < 1e-12
    assert hellinger_weights(rows, "distance", reference).tolist() == pytest.approx([1 / 3] * 3)


def test_clients_that_share_no_class_with_the_reference_count_alike():
    assert hellinger_weights([[1, 0, 0], [0, 1, 0]], "similarity", [0, 0, 1]).tolist() == [0.5, 0.5]


def test_one_client_and_one_class():
    assert hellinger_distance([5]) == 0
    assert hellinger_weights([[5]], "distance").tolist() == [1.0]


def test_an_empty_histogram_is_taken_as_balanced():
    assert distribution([0, 0, 0, 0]).tolist() == [0.25] * 4
    assert hellinger_distance([0, 0, 0]) == pytest.approx(0, abs=1e-12)


def test_huge_counts_do_not_overflow():
    assert distribution([1e308, 1e308]).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("neighbours", "sensitivity"), [(ADD_REMOVE, 1.0), (REPLACE, math.sqrt(2))]
)
def test_the_noise_on_counts_is_the_multiplier_times_the_sensitivity(neighbours, sensitivity):
    """Counts so large that nothing is clamped, and one so large that the sum hardly moves, give the
    noise back.
    """
    counts, total = np.array([1e6, 1e6, 1e12]), 1e12 + 2e6
    rng, trials, multiplier = np.random.default_rng(1), 20_000, 30.0
    draws = np.array(
        [
            private_histogram(counts, multiplier, rng, neighbours)[:2] * total - counts[:2]
            for _ in range(trials)
        ]
    )
    low, high = stats.chi2.interval(1 - 1e-6, draws.size)
    assert low <= (draws**2).sum() / (multiplier * sensitivity) ** 2 <= high
    assert abs(np.corrcoef(draws.T)[0, 1]) < 6 / math.sqrt(trials)


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=8), seed=st.integers(0, 1000))
def test_a_private_histogram_is_a_distribution(counts, seed):
    shares = private_histogram(counts, 20.0, np.random.default_rng(seed))
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1)


class NoiseOf:
    """Draws what it is told to."""

    def __init__(self, *values):
        self.values = np.array(values)

    def standard_normal(self, shape):
        return self.values.reshape(shape)


def test_negative_counts_are_clamped_before_they_are_normalised():
    assert private_histogram([1, 3], 1.0, NoiseOf(-5.0, 1.0)).tolist() == [0, 1]
    assert private_histogram([1, 3], 1.0, NoiseOf(-5.0, -5.0)).tolist() == [0.5, 0.5]
    assert private_histogram([1, 3], 2.0, NoiseOf(0.5, -0.5)).tolist() == [0.5, 0.5]


def test_the_histogram_depends_on_its_generator_only():
    first, again, other = (
        private_histogram([5, 9, 1], 1.0, np.random.default_rng(seed)) for seed in (4, 4, 5)
    )
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rng: distribution([]),
        lambda rng: distribution(3),
        lambda rng: distribution([1, -1]),
        lambda rng: distribution([1, math.nan]),
        lambda rng: hellinger_distance([1, 2, 3], [1, 2]),
        lambda rng: hellinger_weights([[1, 2]], "closeness"),
        lambda rng: private_histogram([1, 2], 0.0, rng),
        lambda rng: private_histogram([1, 2], math.inf, rng),
        lambda rng: private_histogram([1, 2], 1.0, rng, "none"),
        lambda rng: private_histogram([], 1.0, rng),
        lambda rng: private_histogram([[1, 2]], 1.0, rng),
        lambda rng: private_histogram([1, math.inf], 1.0, rng),
    ],
)
def test_bad_input_is_one_clear_sentence(wrong):
    with pytest.raises(DpflError) as error:
        wrong(np.random.default_rng(0))
    assert str(error.value).endswith(".")
