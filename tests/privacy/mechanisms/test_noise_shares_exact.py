"""Shared noise as docs/privacy.md proves it, computed again with mpmath: rounding, survivors,
colluders, wrapping around.
"""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path

import mpmath
import numpy as np
import pytest

import dpfl.privacy.mechanisms.noises.integer_sum as whole_sums
from dpfl.privacy import All, Flat, Gaussian, Poisson, Release, accountant
from dpfl.privacy.mechanisms.noises.integer_sum import TAIL, IntegerSum
from dpfl.privacy.mechanisms.noises.noise_shares import (
    MIN_GRID_STEPS,
    NoiseShares,
    log_total_variation,
)
from dpfl.privacy.mechanisms.noises.secure_noise import GRID_BITS, standard_normal
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.secagg.group import MOST
from tests.privacy.exact_shares import ONE, aligned, delta, gaussian_delta, larger_delta, of_sum

DELTA = 1e-5
PAGE = Path(__file__).parents[3] / "docs" / "privacy.md"
FARTHEST = mpmath.sqrt(128 * mpmath.log(2))
"""The largest radius that 64 bits give, in deviations."""
CASES = [(3, 0, 1.0, 1.0), (3, 1, 0.8, 0.37), (8, 1, 1.1, 1.0), (10, 3, 2.0, 5.0)]
"""Survivors m, colluders t, multiplier z, clip: the grid follows, with a share of 18.5, 26.8, 26.6
and 30.2 steps.
"""


def release(m: int, t: int, z: float, clip: float, rate: float | None = None) -> Release:
    return Release(
        All() if rate is None else Poisson(rate),
        Flat(clip),
        Gaussian(z),
        noise_shares=NoiseShares(m, t),
    )


def places(n: int) -> list[mpmath.mpf]:
    """Of n clients, in steps: halves, whole numbers and what lies between."""
    return [mpmath.mpf(i * 7 % 12) / 12 - mpmath.mpf(1) / 2 for i in range(n)]


def test_the_constants_of_the_page_are_those_of_the_code():
    rows = re.findall(r"^\| `([a-z_.]+)\.([A-Z_]+)` \| ([^|]+) \|", PAGE.read_text(), re.M)
    assert {name for _, name, _ in rows} >= {
        "MIN_GRID_STEPS",
        "TAIL",
        "GRID_BITS",
        "FEWEST",
        "MOST",
        "SEED",
        "PRIME",
        "MARGIN",
    }
    for module, name, value in rows:
        found = getattr(importlib.import_module(f"dpfl.{module}"), name)
        power = re.fullmatch(r"2\^(-?\d+)(?: \+ (\d+))?", value)
        assert found == (2 ** int(power[1]) + int(power[2] or 0) if power else float(value)), name
    assert mpmath.sqrt(mpmath.pi * mpmath.coth(mpmath.pi)) / 2 <= 0.888, (
        "the constant of equation (3)"
    )


@pytest.mark.parametrize(("m", "t", "z", "clip"), CASES)
def test_the_exact_delta_of_the_whole_numbers_is_within_what_the_code_states(m, t, z, clip):
    """One coordinate in the direction of the unit, of the n = m - t honest survivors that there are
    at least: by exact convolution the delta at the stated epsilon is just below the stated one,
    which is that of the Gaussian mechanism."""
    made = release(m, t, z, clip)
    whole, n = made.integer_sum(10.0, m), m - t
    s, moved = mpmath.mpf(whole.steps), mpmath.mpf(clip) / mpmath.mpf(whole.unit)
    assert MIN_GRID_STEPS <= s < 2 * MIN_GRID_STEPS
    epsilon = accountant("pld").epsilon({made.event(100): 1}, DELTA)
    xs = places(n)
    pairs = aligned(of_sum(xs, s), of_sum([xs[0] + moved, *xs[1:]], s))
    assert abs(sum(p for p, _ in pairs) - ONE) < ONE // 10**30
    found = larger_delta(pairs, epsilon)
    assert 0.99 * DELTA < found <= DELTA
    assert found <= gaussian_delta(moved / (s * mpmath.sqrt(n)), epsilon)


@pytest.mark.parametrize(("m", "t", "z", "clip"), CASES)
def test_one_share_less_would_not_be_enough(m, t, z, clip):
    """So the test above can fail: a colluder, or a lost client, that nobody counted."""
    made = release(m, t, z, clip)
    whole, xs = made.integer_sum(10.0, m), places(m - t - 1)
    s, moved = mpmath.mpf(whole.steps), mpmath.mpf(clip) / mpmath.mpf(whole.unit)
    epsilon = accountant("pld").epsilon({made.event(100): 1}, DELTA)
    assert (
        larger_delta(aligned(of_sum(xs, s), of_sum([xs[0] + moved, *xs[1:]], s)), epsilon)
        > 3 * DELTA
    )


def test_batches_that_are_drawn_are_mixtures_of_such_laws():
    """With a rate of 0.3: one unit's coin, fixed data else; both directions against the sampled
    event of the ledger.
    """
    m, t, z, rate = 5, 1, 0.9, 0.3
    made = release(m, t, z, 1.0, rate)
    whole, xs = made.integer_sum(10.0, m), places(m - t)
    s, moved = mpmath.mpf(whole.steps), 1 / mpmath.mpf(whole.unit)
    epsilon = accountant("pld").epsilon({made.event(100): 1}, DELTA)
    share = round(rate * 2**40)
    both = aligned(of_sum(xs, s), of_sum([xs[0] + moved, *xs[1:]], s))
    pairs = [(p, (p * (2**40 - share) + q * share) >> 40) for p, q in both]
    assert 0.9 * DELTA < larger_delta(pairs, epsilon) <= DELTA


def test_two_numbers_or_two_rounds_compose_as_the_ledger_counts_them():
    """All pairs of chances, for two rounds of one coordinate each."""
    made = release(3, 1, 1.5, 1.0)
    whole, xs = made.integer_sum(10.0, 3), places(2)
    s, moved = mpmath.mpf(whole.steps), 1 / mpmath.mpf(whole.unit)
    epsilon = accountant("pld").epsilon({made.event(100): 2}, DELTA)
    pairs = [
        pair
        for pair in aligned(of_sum(xs, s), of_sum([xs[0] + moved, *xs[1:]], s))
        if max(pair) > ONE >> 60
    ]
    factor = math.exp(epsilon)
    p, q = (np.array([float(pair[i]) / ONE for pair in pairs]) for i in (0, 1))
    found = np.maximum(np.outer(p, p) - factor * np.outer(q, q), 0).sum()
    assert 0.9 * DELTA < found <= DELTA


def ideal(xs: list[mpmath.mpf], s: mpmath.mpf, reach: int) -> list[mpmath.mpf]:
    """Chances of round(X + N(0, n s^2) + n - 1 uniforms) at -reach, ..., reach, by its Fourier
    integral. The error of the trapezoid rule is the law's own mass beyond half a period."""
    n, total = len(xs), mpmath.fsum(xs)
    step = 2 * mpmath.pi / (6 * reach)
    last = int(13 / (s * mpmath.sqrt(n)) / step) + 1
    nodes = [
        (j * step, mpmath.exp(-n * (s * j * step) ** 2 / 2) * mpmath.sinc(j * step / 2) ** n)
        for j in range(1, last)
    ]
    return [
        step
        / (2 * mpmath.pi)
        * (1 + 2 * mpmath.fsum(weight * mpmath.cos(v * (k - total)) for v, weight in nodes))
        for k in range(-reach, reach + 1)
    ]


@pytest.mark.parametrize(("s", "n"), [("0.9", 2), ("1.2", 3), ("1.6", 2)])
def test_the_distance_to_one_rounded_normal_number_is_below_equation_3(s, n):
    """Exactly, where the two still differ: by 1e-3 to 1e-6 of the bound, and far above the last
    digit.
    """
    with mpmath.workdps(40):
        spread, xs = mpmath.mpf(s), places(n)
        reach = int(13 * spread * n)
        low, chances = of_sum(xs, spread)
        found = {low + i: mpmath.mpf(p) / ONE for i, p in enumerate(chances)}
        wanted = dict(zip(range(-reach, reach + 1), ideal(xs, spread, reach), strict=True))
        distance = (
            mpmath.fsum(
                abs(found.get(k, 0) - wanted.get(k, 0)) for k in found.keys() | wanted.keys()
            )
            / 2
        )
        assert mpmath.mpf(10) ** -24 < distance <= mpmath.exp(log_total_variation(float(s), n))


@pytest.mark.parametrize("n", [1, 2, 10, MOST])
@pytest.mark.parametrize("s", [MIN_GRID_STEPS, 23.7, 2 * MIN_GRID_STEPS])
def test_equation_3_is_what_the_code_computes_and_is_nothing_at_the_steps_that_are_used(s, n):
    with mpmath.workdps(600):
        s, pi = mpmath.mpf(s), mpmath.pi
        lines = [
            (2 * j - 1, mpmath.exp(-(s**2) * pi**2 * (2 * j - 1) ** 2 / 2)) for j in range(1, 8)
        ]
        r = 2 * mpmath.fsum(weight for _, weight in lines)
        r1 = 2 * mpmath.fsum(weight * (1 + s**2 * pi * odd) for odd, weight in lines)
        bound = mpmath.mpf("0.888") * mpmath.sqrt(
            ((n + 1) * r) ** 2 + (n * (2 * r1 + n * (1 + s) * r)) ** 2
        )
        assert float(mpmath.log(bound)) == pytest.approx(
            log_total_variation(float(s), n), rel=1e-12
        )
        assert mpmath.log10(bound) < -540


# No sum wraps around


@pytest.mark.parametrize("clients", [1, 3, MOST])
@pytest.mark.parametrize(
    ("share", "bound"), [(1.0, 10.0), (0.37, 1e6), (3.1e-9, 1.0), (1.0, 2.0**50), (15.999, 123.456)]
)
def test_the_farthest_sum_of_all_clients_fits(monkeypatch, share, bound, clients):
    """Every number at its bound, every share at the farthest that 64 bits give, through the code's
    own arithmetic.
    """
    whole = IntegerSum(share, bound, clients)
    with mpmath.workdps(60):
        most = mpmath.floor(mpmath.mpf(bound) / mpmath.mpf(whole.unit) + 0.5) + mpmath.floor(
            FARTHEST * whole.steps + 1
        )
        assert clients * most <= whole.largest < 2 ** (whole.bits - 1)
    assert FARTHEST < TAIL
    farthest = standard_normal(np.array([0, 0], np.uint64))[0]
    for sign in (1, -1):
        monkeypatch.setattr(
            whole_sums,
            "standard_normal",
            lambda bits, sign=sign: np.full(len(bits), sign * farthest),
        )
        sent = whole.numbers(np.full(4, sign * bound * 1.5), np.random.default_rng(0))
        one = int(sent.view(whole.kind.replace("u", "i"))[0])
        assert sign * one <= most
        total = np.zeros(4, whole.kind)
        for _ in range(clients):
            total += sent
        assert whole.total(total)[0] == float(one * clients) * whole.unit


def test_a_sum_of_answers_has_the_grid_and_room_of_its_own_noise():
    shared, query = NoiseShares(8, 1), MeanQuery(4.0)
    whole = query.integer_sum(shared, 784, 28.0 * 6000, 10)
    assert whole.share == pytest.approx(4.0 * 28.0 / math.sqrt(7))
    assert whole.largest < 2 ** (whole.bits - 1)


# The normal numbers that are drawn: 64 bits for a radius, 64 for an angle, in float64


def error(radius: mpmath.mpf) -> mpmath.mpf:
    """How far a normal number in float64 is from that of its bits: docs/privacy.md, the
    generator.
    """
    return (radius + 1) * mpmath.mpf(2) ** -50 + mpmath.mpf(2) ** -52 / max(
        radius, mpmath.mpf(2) ** -26
    )


@pytest.mark.parametrize("near", ["anywhere", "the tails", "no noise", "quarters of a turn"])
def test_normal_numbers_are_those_of_their_bits(near):
    """Fault: the error was stated as (r + 1) 2^-50; where the radius is small the rounding of its
    64 bits to 53 is more.
    """
    rng, count = np.random.default_rng(0), 1500
    words, angles = rng.integers(0, 2**64, (2, count), dtype=np.uint64)
    if near == "the tails":
        words >>= rng.integers(0, 64, count).astype(np.uint64)
    if near == "no noise":
        words = np.uint64(2**64 - 1) - (words >> rng.integers(4, 64, count).astype(np.uint64))
    if near == "quarters of a turn":
        angles = (rng.integers(0, 4, count).astype(np.uint64) << np.uint64(62)) + rng.integers(
            0, 99, count
        ).astype(np.uint64)
    found = standard_normal(np.concatenate([words, angles]))
    with mpmath.workprec(150):
        for i in range(count):
            radius = mpmath.sqrt(-2 * mpmath.log((int(words[i]) + 1) * mpmath.mpf(2) ** -64))
            angle = int(angles[i].view(np.int64)) * mpmath.pi * mpmath.mpf(2) ** -63
            assert abs(radius * mpmath.cos(angle) - mpmath.mpf(float(found[i]))) <= error(radius)
            assert abs(radius * mpmath.sin(angle) - mpmath.mpf(float(found[count + i]))) <= error(
                radius
            )


def cells(steps: float, offset: float) -> float:
    """sum over the whole numbers of 2 max h: what drawing the radius from 2^64 values can change,
    in units of 2^-64.
    """
    total = 0.0
    for sign in (1, -1):
        ends = np.arange(1, math.ceil(float(FARTHEST) * steps) + 2) + 0.5 - sign * offset
        total += (2 / math.pi * np.arccos(np.clip((ends - 1) / ends, 0, 1))).sum()
    return total + 2  # the whole number that has 0 in it


@pytest.mark.parametrize("offset", [0.0, 0.25, 0.4999])
def test_that_radii_and_angles_are_drawn_from_64_bits_changes_next_to_nothing(offset):
    """Half the sum of 2 max h, of 4 for radii that end in a cell and of 4 for edges; and what lies
    beyond the last radius.
    """
    for steps, stated in ((2 * MIN_GRID_STEPS, 2.0**-58), (2.0 ** (GRID_BITS + 1), 2.0**-52)):
        assert 2.0**-64 * ((cells(steps, offset) + 8) / 2 + 1) <= stated


def crossing(edge: float, steps: float) -> mpmath.mpf:
    """The chance that float64 puts a normal number on the other side of an edge, over the density
    there: at most twice the integral of the error over all radii that reach it. To add x and to
    multiply by the steps is rounded too."""
    least = mpmath.mpf(2) ** -26
    rounding = 2.0**-52 * (edge + 1) + 2.0**-52 * (edge + 1 / steps)

    def at(y: mpmath.mpf) -> mpmath.mpf:
        return mpmath.exp(-(y**2) / 2) * (error(mpmath.sqrt(edge**2 + y**2)) + rounding)

    points = [0, least, 2.0**-20, 2.0**-14, 2.0**-8, 2.0**-4, 1, 4, 12]
    return 2 * mpmath.sqrt(2 / mpmath.pi) * 2 * mpmath.quad(at, points)


@pytest.mark.parametrize(
    ("steps", "stated"), [(2 * MIN_GRID_STEPS, 2.0**-37), (2.0 ** (GRID_BITS + 1), 2.0**-24)]
)
def test_float64_changes_the_chance_of_a_whole_number_by_a_tiny_factor(steps, stated):
    """Both edges of a number that lies anywhere up to the farthest radius, over its chance: a cell
    of one step, whose density is at least that of its far edge."""
    for edge in (0.0, 0.01, 0.3, 1.0, 3.0, 6.0, float(FARTHEST)):
        steeper = math.exp((edge + 1 / steps) / steps)
        assert steps * 2 * steeper * crossing(edge, steps) <= stated


def mean_square_factor(steps: float) -> float:
    """Of the same, over the normal numbers that come out."""
    places, width = np.arange(0.05, 6.0, 0.1), 0.1
    weights = 2 * width * np.exp(-(places**2) / 2) / math.sqrt(2 * math.pi)
    return math.sqrt(
        sum(
            w * (steps * 2 * crossing(float(x), steps)) ** 2
            for w, x in zip(weights, places, strict=True)
        )
    )


def test_what_that_adds_is_what_is_stated():
    """In docs/privacy.md for 10 clients, 26,010 numbers, 317 rounds, and for 100 clients, 159,010
    numbers, 1000 rounds; in privacy/mechanisms/noises/secure_noise.py for 1000 releases of 159,010.
    By Hoeffding's and Bernstein's inequalities, at 1e-12, epsilon 2."""
    for numbers, delta_added, epsilon_added in (
        (10 * 26_010 * 317, 3e-9, 2e-6),
        (100 * 159_010 * 1000, 5e-7, 3e-5),
    ):
        assert numbers * 2.0**-58 * (1 + math.exp(2)) < delta_added
        loss = 2 * 2.0**-37
        assert (
            2 * (numbers * loss**2 + loss * math.sqrt(2 * numbers * math.log(1e12))) < epsilon_added
        )
    numbers, root, largest = 1000 * 159_010, mean_square_factor(2.0 ** (GRID_BITS + 1)), 2.0**-24
    assert root < 2.0**-26
    assert numbers * 2.0**-52 * (1 + math.exp(2)) < 3e-7
    apart = (
        root * math.sqrt(2 * numbers * math.log(1e12))
        + largest * math.log(1e12) / 3
        + numbers * root**2
    )
    assert 2 * apart < 0.003


def test_delta_is_asymmetric_only_where_laws_are():
    """The helper itself: a law against itself has none, and against nothing in common all."""
    law = of_sum(places(2), mpmath.mpf(16))
    assert larger_delta(aligned(law, law), 0.0) == 0
    apart = aligned(law, (law[0] + 10_000, law[1]))
    assert delta(apart, 3.0) == pytest.approx(1.0, abs=1e-25)
