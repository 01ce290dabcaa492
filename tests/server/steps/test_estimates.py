"""Estimates of curvature and heterogeneity: the raw ones of the papers, and the sound ones from
released gradients.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.server.steps.ali_bounds import noise_energy
from dpfl.server.steps.estimates import (
    raw_gamma,
    raw_slope,
    released_slope,
    subtract_noise,
)


def test_the_authors_gamma_lets_clients_cancel_before_its_size_is_taken() -> None:
    assert raw_gamma([0.5, -0.1], [1, 3]) == pytest.approx(0.05)
    assert raw_gamma([-0.5, -0.1], [1, 3]) == pytest.approx(0.2)


def test_the_published_slope_is_the_weighted_mean_of_ratios() -> None:
    assert raw_slope([1.0, 6.0], [2.0, 3.0], [1, 3]) == pytest.approx(0.25 * 0.5 + 0.75 * 2.0)


def test_a_client_that_did_not_move_says_nothing_about_the_slope() -> None:
    assert raw_slope([0.0, 6.0], [0.0, 3.0], [1, 3]) == pytest.approx(2.0)
    assert raw_slope([0.0, 0.0], [2.0, 3.0], [1, 3]) == 0.0


@pytest.mark.parametrize("weights", [[1, 1], [1, 0]])
def test_without_any_move_there_is_no_slope(weights: list[int]) -> None:
    for distances in ([0.0, 0.0], [0.0, float(weights[1] == 0)]):
        with pytest.raises(DpflError, match="No client's model has moved"):
            raw_slope([1.0, 1.0], distances, weights)
        with pytest.raises(DpflError, match="No client's model has moved"):
            released_slope([1.0, 1.0], distances, weights, [0.1, 0.1], 10)


SIGMA, CLIP, SIZE, BATCH = 1.1, 1.0, 2000, 30.0
SINGLE = noise_energy(SIGMA, CLIP, SIZE, BATCH)


def noisy_differences(
    curvature: float, clients: int, rng: np.random.Generator
) -> tuple[list[float], list[float]]:
    """|g - g'| and |w - w'| of quadratic losses, with the noise of a release on either gradient."""
    differences, distances = [], []
    for _ in range(clients):
        move = rng.standard_normal(SIZE) / math.sqrt(SIZE)
        noise = SIGMA * CLIP / BATCH * (rng.standard_normal(SIZE) - rng.standard_normal(SIZE))
        differences.append(float(np.linalg.norm(curvature * move + noise)))
        distances.append(float(np.linalg.norm(move)))
    return differences, distances


@pytest.mark.parametrize("curvature", [0.7, 2.0])
def test_the_sound_slope_finds_the_curvature_behind_the_noise(curvature: float) -> None:
    differences, distances = noisy_differences(curvature, 400, np.random.default_rng(0))
    weights, noises = [1.0] * 400, [2 * SINGLE] * 400
    assert released_slope(differences, distances, weights, noises, SIZE) == pytest.approx(
        curvature, rel=0.03
    )
    assert raw_slope(differences, distances, weights) > 1.2 * curvature


def test_the_noise_that_is_removed_is_the_noise_that_a_release_adds() -> None:
    rng = np.random.default_rng(1)
    draws = SIGMA * CLIP / BATCH * rng.standard_normal((200, SIZE))
    squares = (draws**2).sum(1)
    assert squares.mean() == pytest.approx(SINGLE, rel=0.01)
    assert squares.std() == pytest.approx(SINGLE * math.sqrt(2 / SIZE), rel=0.2)
    assert noise_energy(SIGMA, CLIP, SIZE, BATCH, steps=4) == pytest.approx(SINGLE / 4)


@pytest.mark.parametrize("difference", [0.0, 0.5 * math.sqrt(2 * SINGLE), math.sqrt(2 * SINGLE)])
def test_a_difference_below_its_noise_gives_the_smallest_slope_that_could_be_told_from_none(
    difference: float,
) -> None:
    expected = math.sqrt(2 * SINGLE * math.sqrt(2 / SIZE)) / 0.8
    assert released_slope([difference], [0.8], [5.0], [2 * SINGLE], SIZE) == pytest.approx(expected)


def test_more_clients_resolve_smaller_slopes() -> None:
    one = released_slope([0.0], [1.0], [1.0], [2 * SINGLE], SIZE)
    sixteen = released_slope([0.0] * 16, [1.0] * 16, [1.0] * 16, [2 * SINGLE] * 16, SIZE)
    assert sixteen == pytest.approx(one / 2)


@given(
    squares=st.lists(st.floats(0, 100), min_size=1, max_size=8),
    noise=st.floats(1e-6, 100),
    d=st.integers(1, 1_000_000),
)
def test_a_denoised_square_is_positive_and_never_more_than_was_seen_but_for_its_floor(
    squares: list[float], noise: float, d: int
) -> None:
    weights = [1.0] * len(squares)
    found = subtract_noise(squares, weights, [noise] * len(squares), d)
    floor = noise * math.sqrt(2 / d / len(squares))
    assert found > 0
    assert found <= max(float(np.mean(squares)), floor) * (1 + 1e-9)
    assert found >= floor * (1 - 1e-9)


@given(
    differences=st.lists(st.floats(0, 100), min_size=3, max_size=3),
    distances=st.lists(st.floats(0.1, 100), min_size=3, max_size=3),
)
def test_without_noise_and_for_equal_clients_sound_and_published_agree(
    differences: list[float], distances: list[float]
) -> None:
    for difference, distance in zip(differences, distances, strict=True):
        sound = released_slope([difference] * 2, [distance] * 2, [1, 3], [0, 0], 10)
        assert sound == pytest.approx(raw_slope([difference] * 2, [distance] * 2, [1, 3]))


@pytest.mark.parametrize(
    ("differences", "distances", "weights", "problem"),
    [
        ([1.0], [1.0, 1.0], [1, 1], "A difference is needed for each of 2 clients"),
        ([1.0, 1.0], [1.0], [1, 1], "A distance is needed for each of 2 clients"),
        (
            [math.nan, 1.0],
            [1.0, 1.0],
            [1, 1],
            "A difference of a client is not a finite number of at least 0",
        ),
        (
            [1.0, 1.0],
            [1.0, math.inf],
            [1, 1],
            "A distance of a client is not a finite number of at least 0",
        ),
        (
            [1.0, 1.0],
            [1.0, 1.0],
            [-1, 2],
            "A weight of a client is not a finite number of at least 0",
        ),
        ([1.0, 1.0], [1.0, 1.0], [0, 0], "At least one client must have a weight above 0"),
    ],
)
def test_estimates_refuse_what_is_not_one_number_for_each_client(
    differences: list[float], distances: list[float], weights: list[float], problem: str
) -> None:
    with pytest.raises(DpflError, match=problem):
        raw_slope(differences, distances, weights)
    with pytest.raises(DpflError, match=problem):
        released_slope(differences, distances, weights, [0.1] * len(weights), 10)


def test_noise_energies_are_checked_like_the_rest() -> None:
    with pytest.raises(DpflError, match="A noise energy of a client"):
        released_slope([1.0], [1.0], [1], [math.nan], 10)
    with pytest.raises(DpflError, match=r"^d must be"):
        released_slope([1.0], [1.0], [1], [0.1], 0)
