"""A release never moves further than it says, and its event says no more noise than there is."""

import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy import (
    All,
    FixedCohort,
    FixedSize,
    Flat,
    Gaussian,
    NoClip,
    PerLayer,
    Poisson,
    PoissonSize,
    PublicMedian,
    Quantile,
    Release,
)
from dpfl.privacy.mechanisms.clips.clip import ModelClip
from dpfl.privacy.mechanisms.clips.vector_clipping import clip_vector
from dpfl.privacy.mechanisms.noises.noise import Uncalibrated
from dpfl.privacy.mechanisms.update_release import UpdateRelease

NAMES = ("one.weight", "one.bias", "two.weight")
OFFSETS = (0, 6, 8, 16)
CLIPS = [Flat(0.5), PerLayer(2.0), PublicMedian(1.3), Quantile(0.7, count_noise=3.0)]

levels = st.floats(0.01, 100.0)
multipliers = st.floats(0.3, 5.0)


@st.composite
def units(draw):
    """Vectors of random direction and any length, weights up to 1, and who differs."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(2, 8))
    directions = generator.standard_normal((count + 1, OFFSETS[-1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = np.array(
        draw(
            st.lists(
                st.sampled_from([0.0, 1e-6, 0.3, 1.0, 5.0, 1e6, 1e25]),
                min_size=count + 1,
                max_size=count + 1,
            )
        )
    )
    if draw(st.booleans()):
        directions[-1] = -directions[0]  # the worst replacement
    weights = np.array(draw(st.lists(st.floats(0.01, 1.0), min_size=count + 1, max_size=count + 1)))
    return torch.from_numpy(directions * lengths[:, None]).float(), weights


def clipped(clip, vectors):
    pairs = [clip_vector(vector, clip, NAMES, OFFSETS) for vector in vectors]
    return torch.stack([vector for vector, _ in pairs]).double().numpy(), np.array(
        [inside for _, inside in pairs]
    )


@given(units())
@settings(max_examples=50, deadline=None)
@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: type(clip).__name__)
@pytest.mark.parametrize(
    "sampling", [All(), Poisson(0.5), PoissonSize(3)], ids=lambda sampling: type(sampling).__name__
)
def test_adding_or_removing_one_unit_never_moves_the_sum_further_than_stated(sampling, clip, drawn):
    vectors, weights = drawn
    rows, _ = clipped(clip, vectors)
    with_unit = (weights[:, None] * rows).sum(0)
    stated = Release(sampling, clip, Gaussian(1.0)).sensitivity(weights.max())
    for unit in range(len(rows)):
        without = (np.delete(weights, unit)[:, None] * np.delete(rows, unit, axis=0)).sum(0)
        assert np.linalg.norm(with_unit - without) <= stated * (1 + 1e-9)


@given(units())
@settings(max_examples=50, deadline=None)
@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: type(clip).__name__)
def test_replacing_one_unit_never_moves_the_sum_further_than_twice_that(clip, drawn):
    """The event of a fixed-size draw halves the multiplier for this."""
    vectors, weights = drawn
    rows, _ = clipped(clip, vectors)
    contributions = weights[:, None] * rows
    before = contributions[:-1].sum(0)
    stated = 2 * Release(FixedSize(2), clip, Gaussian(1.0)).sensitivity(weights.max())
    for unit in range(len(rows) - 1):
        after = before - contributions[unit] + contributions[-1]
        assert np.linalg.norm(after - before) <= stated * (1 + 1e-9)


def test_the_stated_sensitivity_is_reached():
    """It is not only large enough: a unit far outside moves the sum by all of it, but for the
    margin of clipping.
    """
    for clip in CLIPS:
        vector = torch.full((OFFSETS[-1],), 1e3)
        moved = np.linalg.norm(clipped(clip, [vector])[0])
        assert moved == pytest.approx(Release(All(), clip, Gaussian(1.0)).sensitivity(), rel=4e-5)


@given(units(), multipliers, st.floats(0.51, 10.0), levels)
@settings(max_examples=50, deadline=None)
@pytest.mark.parametrize("replaced", [False, True], ids=["add/remove", "replace"])
def test_vector_and_count_of_quantile_clipping_are_one_release_of_the_stated_multiplier(
    replaced, drawn, z, ratio, level
):
    """The Mahalanobis distance of the pair is at most 1 over the event's multiplier."""
    vectors, weights = drawn
    clip = Quantile(level, count_noise=z * ratio)
    release = Release(FixedSize(2) if replaced else Poisson(0.5), clip, Gaussian(z))
    rows, inside = clipped(clip, vectors)
    deviation = release.stddev(weights.max())
    accounted = release.event(10).event.noise_multiplier
    sent = np.column_stack([weights[:, None] * rows / deviation, (inside - 0.5) / clip.count_noise])
    moves = sent[:-1] - sent[-1] if replaced else sent
    assert (np.linalg.norm(moves, axis=1) <= (1 + 1e-9) / accounted).all()


@given(levels, multipliers, st.floats(0.01, 1.0))
def test_the_event_of_a_flat_clip_is_noise_over_sensitivity(level, z, weight):
    release = Release(Poisson(0.1), Flat(level), Gaussian(z))
    assert release.stddev(weight) / release.sensitivity(weight) == pytest.approx(z, rel=1e-12)
    assert release.event(100) == dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(z))
    assert Release(All(), Flat(level), Gaussian(z)).event(100) == dp.GaussianDpEvent(z)
    replacing = Release(FixedSize(5), Flat(level), Gaussian(z))
    multiplier = replacing.event(100).event.noise_multiplier
    assert multiplier == pytest.approx(
        replacing.stddev(weight) / (2 * replacing.sensitivity(weight)), rel=1e-12
    )


@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: type(clip).__name__)
@pytest.mark.parametrize(
    "sampling", [All(), FixedSize(4)], ids=lambda sampling: type(sampling).__name__
)
def test_measured_noise_over_the_largest_move_is_no_less_than_the_event_says(sampling, clip):
    """From outside: what an adversary sees of the noise, against what one unit can do."""
    z, weight = 1.3, 0.4
    release = Release(sampling, clip, Gaussian(z))
    noise = (
        release.add_noise(torch.zeros(400_000), np.random.default_rng(0), largest_weight=weight)
        .double()
        .std()
    )
    move = weight * np.linalg.norm(clipped(clip, [torch.full((OFFSETS[-1],), 1e9)])[0])
    event = release.event(10)
    accounted = (
        event.event.noise_multiplier * 2
        if isinstance(sampling, FixedSize)
        else event.noise_multiplier
    )
    assert float(noise) / move >= accounted * 0.995
    assert accounted == z


def test_quantile_clipping_adds_more_noise_to_the_vector_to_pay_for_the_count():
    release = Release(Poisson(0.1), Quantile(1.0, count_noise=4.0), Gaussian(2.0))
    assert release.stddev() == pytest.approx(1 / math.sqrt(1 / 4 - 1 / 64))
    assert release.event(100) == dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0))


def test_quantile_clipping_with_too_little_noise_on_the_count_is_refused():
    release = Release(Poisson(0.1), Quantile(1.0, count_noise=1.0), Gaussian(2.0))
    with pytest.raises(DpflError, match="count_noise"):
        release.stddev()


def test_noise_without_a_clip_is_refused():
    for noise in (Gaussian(1.0), Uncalibrated()):
        with pytest.raises(DpflError, match="without a clip"):
            Release(All(), NoClip(), noise)


def test_noise_on_clipped_models_is_refused():
    for noise in (Gaussian(1.0), Uncalibrated()):
        with pytest.raises(DpflError, match="clipped models"):
            Release(All(), ModelClip(1.0), noise)


@given(st.integers(2, 100), multipliers)
def test_shared_noise_counts_as_what_the_others_of_a_member_add(shares, z):
    """Fault: a client that subtracts its own share faces the rest, and epsilon is stated for the
    whole.
    """
    release = Release(Poisson(0.1), Flat(1.0), Gaussian(z), shared_by=shares)
    event = release.event(100)
    assert event.event.noise_multiplier == pytest.approx(
        z * math.sqrt((shares - 1) / shares), rel=1e-12
    )
    assert release.stddev() == z, "all shares together"


def test_noise_shared_by_one_is_refused_as_it_could_subtract_all_of_it():
    for shares in (1, 0, -3):
        with pytest.raises(DpflError, match="at least 2 clients"):
            Release(All(), Flat(1.0), Gaussian(1.0), shared_by=shares)


@pytest.mark.parametrize(
    ("release", "neighbours"),
    [
        (Release(Poisson(0.1), Flat(1.0), Gaussian(1.0)), "add/remove one"),
        (Release(All(), Flat(1.0), Gaussian(1.0)), "add/remove one"),
        (Release(FixedSize(3), Flat(1.0), Gaussian(1.0)), "replace one"),
        (Release(FixedCohort(3), Flat(1.0), Gaussian(1.0)), "replace one"),
        (
            UpdateRelease(
                All(), Flat(1.0), Gaussian(1.0), sensitivity_bound=2.0, protects="client"
            ),
            "replace one",
        ),
        (UpdateRelease(All(), Flat(1.0), Gaussian(1.0), sensitivity_bound=2.0), "add/remove one"),
    ],
)
def test_a_release_says_whom_it_is_proven_for(release, neighbours):
    """The server sees who uploads: a client cannot be absent there, only have other data."""
    assert release.neighbours == neighbours


def test_shared_noise_with_quantile_clipping_is_refused():
    with pytest.raises(DpflError, match="at the server"):
        Release(All(), Quantile(1.0), Gaussian(1.0), shared_by=10)


def test_a_release_without_noise_says_that_it_protects_nothing():
    for clip in (NoClip(), Flat(1.0), ModelClip(1.0)):
        release = Release(Poisson(0.1), clip)
        assert not release.has_noise
        assert release.event(100) == dp.NonPrivateDpEvent()
        assert release.stddev() == 0
        assert release.noise_multiplier == 0


def test_planned_noise_cannot_be_used_before_it_is_planned():
    release = Release(Poisson(0.1), Flat(1.0), Uncalibrated())
    assert release.has_noise
    for use in (
        lambda: release.noise_multiplier,
        lambda: release.stddev(),
        lambda: release.event(100),
        lambda: release.add_noise(torch.zeros(3), np.random.default_rng(0)),
    ):
        with pytest.raises(DpflError, match="not planned yet"):
            use()


def test_planning_gives_the_noise_and_changes_nothing_else():
    before = Release(Poisson(0.1), Flat(1.0), Uncalibrated(), shared_by=3)
    after = before.with_noise(1.5)
    assert after.stddev() == 1.5
    assert (after.sampling, after.clip, after.shared_by) == (
        before.sampling,
        before.clip,
        before.shared_by,
    )


def test_the_noise_of_a_mean_is_that_of_the_sum_over_its_divisor():
    release = Release(Poisson(0.1), Flat(0.5), Gaussian(2.0))
    assert release.mean_stddev(200) == 0.5 * 2 / 20
    assert replace(release, divisor=64.0).mean_stddev(200) == 1 / 64
