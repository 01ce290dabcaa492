"""Correlated noise is exactly C^-1 w, from a short memory, and its sensitivity is that of C."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy import Keyed
from dpfl.privacy.mechanisms.noises.matrix import BandedRoot
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector


def dense(root):
    """C as a matrix."""
    n, matrix = root.rounds, np.zeros((root.rounds, root.rounds))
    for k, value in enumerate(root.coefficients):
        matrix += value * np.eye(n, k=-k)
    return matrix


def keyed(size, seed=0):
    return lambda t: gaussian_vector(
        size, 1.0, Keyed(seed).generator("matrix noise", round=t)
    ).double()


SHAPES = st.integers(1, 24).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


def test_coefficients_of_the_root_and_of_its_inverse():
    root = BandedRoot(5, 5)
    assert root.coefficients.tolist() == [1, 0.5, 0.375, 0.3125, 0.2734375]
    assert root.inverse.tolist() == [1, -0.5, -0.125, -0.0625, -0.0390625]


@pytest.mark.parametrize(("rounds", "norm"), [(1, 1.0), (4, 1.219951), (1024, 1.809020)])
def test_column_norm(rounds, norm):
    assert BandedRoot(rounds, rounds).column_norm == pytest.approx(norm, abs=5e-7)


def test_the_root_squared_is_the_matrix_of_prefix_sums():
    c = dense(BandedRoot(12, 12))
    assert np.allclose(c @ c, np.tril(np.ones((12, 12))))


@given(shape=SHAPES)
def test_the_inverse_is_the_inverse(shape):
    root = BandedRoot(*shape)
    column = np.linalg.inv(dense(root))[:, 0]
    assert root.inverse == pytest.approx(column, abs=1e-10)


@given(shape=SHAPES)
def test_the_noise_solves_c_z_equal_to_w(shape):
    root, draw = BandedRoot(*shape), keyed(3)
    noise = torch.stack(list(root.noise(draw))).numpy()
    fresh = torch.stack([draw(t) for t in range(root.rounds)]).numpy()
    assert noise.shape == (root.rounds, 3)
    assert np.allclose(dense(root) @ noise, fresh, atol=1e-10)


def test_one_band_is_independent_noise():
    draw = keyed(4)
    assert all(torch.equal(z, draw(t)) for t, z in enumerate(BandedRoot(6, 1).noise(draw)))


def test_each_vector_is_drawn_once_and_only_when_it_is_needed():
    asked = []

    def draw(t):
        asked.append(t)
        return torch.ones(2)

    noise = BandedRoot(10, 3).noise(draw)
    assert asked == []
    next(noise)
    next(noise)
    assert asked == [0, 1]


def test_a_caller_may_change_what_it_was_given():
    root, draw = BandedRoot(8, 4), keyed(3)
    kept = [z.clone() for z in root.noise(draw)]
    changed = []
    for z in root.noise(draw):
        changed.append(z.clone())
        z.zero_()
    assert all(torch.equal(a, b) for a, b in zip(kept, changed, strict=True))


def test_the_vectors_drawn_are_left_as_they_are():
    drawn = [torch.ones(2) for _ in range(4)]
    list(BandedRoot(4, 4).noise(lambda t: drawn[t]))
    assert all(torch.equal(vector, torch.ones(2)) for vector in drawn)


@given(shape=SHAPES, data=st.data())
def test_noise_goes_on_from_its_last_bands_vectors(shape, data):
    root, draw = BandedRoot(*shape), keyed(2)
    whole = list(root.noise(draw))
    start = data.draw(st.integers(0, root.rounds))
    past = whole[max(0, start - root.bands + 1) : start]
    assert all(
        torch.equal(a, b)
        for a, b in zip(root.noise(draw, start, whole[:start]), whole[start:], strict=True)
    )
    rest = list(root.noise(draw, start, past))
    assert len(rest) == root.rounds - start
    assert all(torch.equal(a, b) for a, b in zip(rest, whole[start:], strict=True))


def test_measured_covariance_is_that_of_the_inverse():
    root, trials = BandedRoot(6, 3), 40_000
    noise = torch.stack(list(root.noise(keyed(trials)))).numpy()
    inverse = np.linalg.inv(dense(root))
    assert np.abs(noise @ noise.T / trials - inverse @ inverse.T).max() < 6 * 2 / math.sqrt(trials)


def test_sums_over_rounds_carry_little_noise():
    """Prefix sums of C^-1 are C itself with all bands, so a sum over n rounds has the variance of a
    column of C, not n.
    """
    root = BandedRoot(256, 256)
    prefix = np.cumsum(root.inverse)
    assert prefix == pytest.approx(root.coefficients, abs=1e-12)
    assert np.sum(prefix**2) == pytest.approx(root.column_norm**2)


@given(shape=SHAPES, extra=st.integers(0, 5), participations=st.integers(1, 4))
def test_sensitivity_is_the_largest_over_all_participations(shape, extra, participations):
    """By trying every set of rounds that are far enough apart; columns that do not overlap add up
    for any directions.
    """
    root = BandedRoot(*shape)
    separation, matrix = root.bands + extra, dense(root)
    largest = 0.0
    for count in range(1, participations + 1):
        for rounds in itertools.combinations(range(root.rounds), count):
            if all(b - a >= separation for a, b in itertools.pairwise(rounds)):
                largest = max(largest, float(np.linalg.norm(matrix[:, list(rounds)])))
    assert root.sensitivity(participations, separation) == pytest.approx(largest)


def test_the_worst_directions_of_separate_rounds_add_nothing():
    root = BandedRoot(12, 4)
    columns = dense(root)[:, [0, 4, 8]]
    same = float(np.linalg.norm(columns.sum(axis=1)))
    opposite = float(np.linalg.norm(columns @ np.array([1, -1, 1])))
    assert same == pytest.approx(opposite) == pytest.approx(root.sensitivity(3, 4))


def test_sensitivity_grows_with_the_root_of_the_participations():
    root = BandedRoot(100, 5)
    assert root.sensitivity() == root.column_norm
    assert root.sensitivity(4, 10) == pytest.approx(2 * root.column_norm)
    assert root.sensitivity(1000, 10) == pytest.approx(math.sqrt(10) * root.column_norm)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: BandedRoot(4, 5),
        lambda: BandedRoot(4, 0),
        lambda: BandedRoot(0, 0),
        lambda: BandedRoot(10, 3).sensitivity(0),
        lambda: BandedRoot(10, 3).sensitivity(2),
        lambda: BandedRoot(10, 3).sensitivity(2, 2),
        lambda: BandedRoot(10, 3).noise(keyed(1), start=2),
        lambda: BandedRoot(10, 3).noise(keyed(1), past=[torch.zeros(1)]),
        lambda: BandedRoot(10, 3).noise(keyed(1), start=11, past=[torch.zeros(1)] * 2),
    ],
)
def test_bad_input_is_one_clear_sentence(wrong):
    with pytest.raises(DpflError) as error:
        wrong()
    assert str(error.value).endswith(".")
