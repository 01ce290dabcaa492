"""How far one unit moves what is rounded to a grid: never farther than the noise is for, however
sums are chosen.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.privacy import All, Flat, Gaussian, Release
from dpfl.privacy.mechanisms.clips.clip import MARGIN
from dpfl.privacy.mechanisms.noises import integer_sum, secure_noise
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noises.secure_noise import grid_step, noisy_number, secure_sum


class SameKey(np.random.Generator):
    """The key of the stream cipher is zeros, so that two sums have the same noise, which their
    difference is free of.
    """

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def bytes(self, length: int) -> bytes:
        return bytes(length)


def added(total: torch.Tensor, deviation: float, multiplier: float) -> np.ndarray:
    return secure_sum(total, deviation, multiplier, SameKey()).double().numpy()


def accounted(
    monkeypatch: pytest.MonkeyPatch, size: int, deviation: float, multiplier: float
) -> float:
    """What the noise that the code really adds is for: where every normal number is 16, the
    deviation to 1/32 of a step.
    """
    with monkeypatch.context() as patched:
        patched.setattr(secure_noise, "standard_normal", lambda bits: np.full(len(bits), 16.0))
        return float(added(torch.zeros(size), deviation, multiplier)[0]) / 16 / multiplier


def moved(one: torch.Tensor, other: torch.Tensor, deviation: float, multiplier: float) -> float:
    return float(
        np.linalg.norm(added(one, deviation, multiplier) - added(other, deviation, multiplier))
    )


def worst(
    size: int, clip: float, unit: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two sums that are `clip` apart at most, every number just below a half step of the one and
    just above of the other.
    """
    one = torch.full((size,), (0.5 - 2.0**-4) * unit, dtype=dtype)
    return one, one + (math.floor(clip / unit / math.sqrt(size)) + 2.0**-3) * unit


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("multiplier", [0.6, 1.3, 9.0])
@pytest.mark.parametrize("size", [1, 7, 1000, 16_000])
def test_the_worst_sums_move_on_the_grid_as_far_as_is_accounted_for_and_no_farther(
    monkeypatch, size, multiplier, dtype
):
    """C + g sqrt(d): without the second term the worst sums would break it, and they reach seven
    eighths of it.
    """
    unit = grid_step(multiplier)  # for a clip of 1
    clip = (math.floor(1 / unit / math.sqrt(size)) + 2.0**-3) * unit * math.sqrt(size)
    deviation = multiplier * clip
    assert grid_step(deviation) == unit
    one, other = worst(size, clip, unit, dtype)
    assert float((one.double() - other.double()).norm()) <= clip * (1 + 1e-9)
    found, room = (
        moved(one, other, deviation, multiplier),
        accounted(monkeypatch, size, deviation, multiplier),
    )
    extra = unit * math.sqrt(size)
    assert room == pytest.approx(clip + extra, abs=unit / 16 / multiplier)
    assert found == pytest.approx(clip + 7 / 8 * extra, rel=1e-9)
    assert clip < found < room


@given(
    st.integers(1, 40),
    st.floats(0.2, 30.0),
    st.floats(0.01, 50.0),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
@settings(deadline=None, max_examples=200)
def test_no_search_moves_a_sum_on_the_grid_farther(size, multiplier, clip, seed, single):
    """Coordinate by coordinate the sums are pushed to where their rounding is worst, in random
    order, within the clip.
    """
    rng, deviation = np.random.default_rng(seed), multiplier * clip
    unit = grid_step(deviation)
    one = np.floor(rng.uniform(-3, 3, size) * clip / unit) + 0.5
    one -= 2.0 ** -rng.integers(1, 12, size).astype(float)
    direction = rng.standard_normal(size) * rng.integers(0, 2, size)
    length = np.linalg.norm(direction) or 1.0
    other = one + direction / length * clip / unit
    other = np.where(
        rng.random(size) < 0.7, np.floor(other) + 0.5 * np.sign(direction), other
    )  # to the next half step
    first, second = (torch.from_numpy(place * unit) for place in (one, other))
    if single:
        first, second = first.float(), second.float()
    apart = float((first.double() - second.double()).norm())
    extra = unit * math.sqrt(size)
    exact = np.rint(first.double().numpy() / unit) - np.rint(second.double().numpy() / unit)
    assert np.linalg.norm(exact) * unit <= apart + extra * (1 + 1e-12)


def test_one_number_moves_by_a_step_more_and_its_noise_is_for_that():
    unit = grid_step(2.0)
    one, other = (0.5 - 2.0**-9) * unit, (0.5 + 2.0**-9) * unit
    found = noisy_number(other, 2.0, 4.0, SameKey(), True) - noisy_number(
        one, 2.0, 4.0, SameKey(), True
    )
    assert found == unit
    assert 2.0 / 4.0 + unit >= found


# Whole numbers of several clients


@given(
    st.floats(-1e6, 1e6) | st.floats(-1e-3, 1e-3),
    st.floats(0.05, 20.0),
    st.floats(-9.4, 9.4),
    st.sampled_from([32, 64]),
)
@settings(deadline=None, max_examples=300)
def test_a_share_is_rounded_once_and_after_its_noise(value, share, drawn, bits):
    """round((x + n) / g), by exact fractions: so rounding is post-processing, and nothing is to be
    paid for it.
    """
    whole = IntegerSum(share, bound=2e6 if bits == 64 else 1e6, clients=3)
    given = np.array([value, value], np.float32 if bits == 32 else np.float64)
    real = integer_sum.standard_normal
    try:
        integer_sum.standard_normal = lambda some: np.full(len(some), drawn)  # type: ignore[assignment]
        found = int(
            whole.numbers(given, np.random.default_rng(0)).view(whole.kind.replace("u", "i"))[0]
        )
    finally:
        integer_sum.standard_normal = real
    inside = min(max(Fraction(float(given[0])), -Fraction(whole.bound)), Fraction(whole.bound))
    exact = inside / Fraction(whole.unit) + Fraction(drawn) * Fraction(whole.steps)
    assert abs(exact - found) <= Fraction(1, 2) + Fraction(1, 2**44)


@given(st.floats(0.0, 1.0), st.integers(0, 2**32 - 1), st.floats(1.0, 2.0**30))
@settings(deadline=None, max_examples=200)
def test_a_weight_brings_two_sums_no_farther_apart_than_the_margin_of_the_clip(scale, seed, units):
    """fl(a x) in float64: two of them are a |x - x'| apart, and 2^-52 of how long they are, which
    the clip leaves room for.
    """
    rng, size = np.random.default_rng(seed), 200
    one = rng.standard_normal(size)
    one *= units / np.linalg.norm(one)
    other = one + rng.standard_normal(size) / math.sqrt(size) / 2
    one, other = (
        one.astype(np.float32).astype(np.float64),
        other.astype(np.float32).astype(np.float64),
    )
    apart, length = np.linalg.norm(one - other), max(np.linalg.norm(one), np.linalg.norm(other))
    found = np.linalg.norm(scale * one - scale * other)
    assert found <= scale * apart * (1 + 1e-15) + 2.0**-52 * scale * length
    assert 2.0**-52 * length < 2.0**-21 < MARGIN


@pytest.mark.parametrize("clients", [2, 10])
def test_what_one_client_moves_does_not_depend_on_the_rounding_of_others(clients):
    """The sum of all moves by what one of them moves, whatever fractions of a step the others are
    at.
    """
    made = Release(All(), Flat(1.0), Gaussian(1.0))
    whole = IntegerSum(made.stddev() / math.sqrt(clients), bound=4.0, clients=clients)
    rng = np.random.default_rng(clients)
    others = [rng.uniform(-1, 1, 50) for _ in range(clients - 1)]
    one = rng.uniform(-1, 1, 50)
    two = one + 1 / math.sqrt(50)

    def total(first: np.ndarray) -> np.ndarray:
        sent = [
            whole.numbers(vector, np.random.default_rng(i))
            for i, vector in enumerate([first, *others])
        ]
        return np.sum(sent, axis=0, dtype=whole.kind)

    alone = whole.numbers(two, np.random.default_rng(0)) - whole.numbers(
        one, np.random.default_rng(0)
    )
    assert np.array_equal(total(two) - total(one), alone)
