"""No unit leaves a clip with more than its level, whatever it brought."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy import Flat, NoClip, PerLayer, PublicMedian, Quantile
from dpfl.privacy.mechanisms.clips.clip import ModelClip

NAMES = ("conv.weight", "conv.bias", "head.weight", "head.bias")
CLIPS = [Flat, PerLayer, Quantile, PublicMedian, ModelClip]

levels = st.floats(1e-3, 1e3)
norms = st.one_of(
    st.just(0.0),
    st.floats(0.0, 3.0, width=32),
    st.floats(0.0, 2**-100, width=32),
    st.floats(1.0, 2.0**100, width=32),
)


@given(levels, st.lists(norms, min_size=1, max_size=20))
@pytest.mark.parametrize("clip", [Flat, Quantile, PublicMedian, ModelClip])
def test_a_factor_never_leaves_a_norm_above_the_level(clip, level, sizes):
    given_norms = torch.tensor([*sizes, level, level * (1 + 1e-7)])[:, None]
    factors = clip(level).factors(given_norms)
    assert (factors <= 1).all()
    assert (factors >= 0).all()
    assert (factors.double() * given_norms.double() <= level).all()


@given(levels, st.lists(st.lists(norms, min_size=4, max_size=4), min_size=1, max_size=10))
def test_layers_clipped_apart_keep_the_level_together(level, sizes):
    given_norms = torch.tensor(sizes)
    clipped = PerLayer(level).factors(given_norms).double() * given_norms.double()
    assert (PerLayer(level).factors(given_norms) <= 1).all()
    assert (clipped.norm(dim=1) <= level).all()


@pytest.mark.parametrize("clip", CLIPS)
def test_norms_well_inside_the_level_are_left_alone(clip):
    assert (clip(1.0).factors(torch.full((3, 1), 0.999)) == 1).all()


@pytest.mark.parametrize("clip", CLIPS)
def test_a_clipped_vector_loses_no_more_than_the_margin(clip):
    factors = clip(2.0).factors(torch.tensor([[8.0]]))
    assert 0.25 * (1 - 2e-5) <= float(factors) < 0.25


@pytest.mark.parametrize("clip", CLIPS)
def test_a_norm_that_is_no_number_never_passes_unclipped(clip):
    assert not (clip(1.0).factors(torch.tensor([[math.inf], [math.nan]])) > 0).any()


def test_layers_are_found_by_their_names():
    assert PerLayer(1.0).groups(NAMES) == ((0, 1), (2, 3))
    assert PerLayer(1.0).groups(("a.b.weight", "a.c.weight", "a.b.bias")) == ((0, 2), (1,))
    for clip in (Flat(1.0), Quantile(1.0), PublicMedian(), NoClip(), ModelClip(1.0)):
        assert clip.groups(NAMES) == ((0, 1, 2, 3),)


@pytest.mark.parametrize("clip", [Flat, PerLayer, Quantile, ModelClip])
@pytest.mark.parametrize("level", [0, -1, math.nan, math.inf])
def test_an_impossible_level_is_refused(clip, level):
    with pytest.raises(DpflError, match="clip norm"):
        clip(level)


@pytest.mark.parametrize("quantile", [0, 1, -0.5, math.nan])
def test_an_impossible_quantile_is_refused(quantile):
    with pytest.raises(DpflError, match="quantile"):
        Quantile(1.0, quantile)


@given(st.floats(0.3, 20.0), st.floats(0.5001, 50.0))
def test_the_count_and_the_vector_share_the_noise_of_one_release(z, ratio):
    clip = Quantile(1.0, count_noise=z * ratio)
    z_vector = clip.vector_multiplier(z)
    assert z_vector > z
    assert z_vector**-2 + (2 * clip.count_noise) ** -2 == pytest.approx(z**-2, rel=1e-9)


@given(st.floats(0.3, 20.0), st.floats(0.01, 0.5))
def test_a_count_with_too_little_noise_is_refused(z, ratio):
    with pytest.raises(DpflError, match=r"count_noise.*raise it above"):
        Quantile(1.0, count_noise=z * ratio).vector_multiplier(z)


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [(1.0, 0.904837), (0.0, 1.105171), (0.5, 1.0), (0.75, 0.951229), (9, 0.904837), (-9, 1.105171)],
)
def test_the_level_follows_the_quantile(fraction, expected):
    """C exp(-0.2 (b - 0.5)), NOTES 3.3; a noisy fraction outside 0..1 counts as its nearest end."""
    moved = Quantile(1.0, 0.5, 0.2, 4.0).adapt(fraction)
    assert moved.clip_norm == pytest.approx(expected, abs=1e-6)
    assert (moved.quantile, moved.rate, moved.count_noise) == (0.5, 0.2, 4.0)
    assert Quantile(3.0).adapt(fraction).clip_norm == pytest.approx(3 * expected, abs=4e-6)


def test_the_level_settles_at_the_quantile_of_the_norms():
    sizes, clip = torch.linspace(0, 10, 1001), Quantile(0.1, 0.8)
    for _ in range(400):
        clip = clip.adapt(float((clip.factors(sizes[:, None]) >= 1).float().mean()))
    assert clip.clip_norm == pytest.approx(8.0, rel=0.02)


def test_a_fraction_that_is_no_number_is_refused():
    with pytest.raises(DpflError, match="clip norm"):
        Quantile(1.0).adapt(math.nan)


def test_the_public_median_is_the_median_and_keeps_its_level_without_one():
    assert PublicMedian().adapt([3.0, 1.0, 2.0]).clip_norm == 2.0
    for useless in ([], [0.0], [math.nan], [math.inf]):
        assert PublicMedian(1.5).adapt(useless).clip_norm == 1.5
