"""No unit leaves a clip with more than its level, whatever it brought."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy import Flat, NoClip, PerLayer, PublicMedian, Quantile
from dpfl.privacy.mechanisms.clip import ModelClip, clip_vector, group_norms

NAMES = ("conv.weight", "conv.bias", "head.weight", "head.bias")
OFFSETS = (0, 12, 15, 33, 40)
CLIPS = [Flat, PerLayer, Quantile, PublicMedian, ModelClip]

levels = st.floats(1e-3, 1e3)
norms = st.one_of(
    st.just(0.0),
    st.floats(0.0, 3.0, width=32),
    st.floats(0.0, 2**-100, width=32),
    st.floats(1.0, 2.0**100, width=32),
)
scales = st.sampled_from(
    [0.0, 1e-42, 1e-30, 1e-10, 1e-3, 0.3, 1.0, 7.0, 1e4, 1e10, 1e18, 1e25, 1e30, 3e38]
)


def exact_norm(vector):
    return float(vector.double().norm())


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


def vectors(seed, scale, sparse):
    generator = np.random.default_rng(seed)
    vector = torch.from_numpy(generator.standard_normal(OFFSETS[-1])).clamp(-3, 3)
    if sparse:
        vector[torch.from_numpy(generator.random(OFFSETS[-1]) < 0.9)] = 0
    return (vector / 3 * scale).float()


@given(levels, st.integers(0, 10**6), scales, st.booleans())
@settings(max_examples=100)
@pytest.mark.parametrize("clip", CLIPS)
def test_a_clipped_vector_never_exceeds_the_level(clip, level, seed, scale, sparse):
    vector = vectors(seed, scale, sparse)
    clipped, inside = clip_vector(vector, clip(level), NAMES, OFFSETS)
    assert exact_norm(clipped) <= level
    if inside:
        assert torch.equal(clipped, vector)


@given(levels, st.integers(0, 10**6))
@pytest.mark.parametrize("clip", [Flat, Quantile, PublicMedian, ModelClip])
def test_a_vector_at_its_level_exactly_does_not_cross_it(clip, level, seed):
    vector = vectors(seed, 1.0, False).double()
    vector = (vector * level / vector.norm()).float()
    assert exact_norm(clip_vector(vector, clip(level), NAMES, OFFSETS)[0]) <= level


@pytest.mark.parametrize("clip", [Flat(1.0), PerLayer(1.0)])
@pytest.mark.parametrize(
    "make",
    [torch.ones, torch.rand, lambda size: torch.randn(size).pow(5)],
    ids=["ones", "rand", "spiky"],
)
def test_float32_sums_over_millions_of_numbers_do_not_cross_the_level(clip, make):
    torch.manual_seed(0)
    vector = make(3_000_000)
    clipped, inside = clip_vector(
        vector, clip, ("one.weight", "two.weight"), (0, 2_900_000, 3_000_000)
    )
    assert not inside
    assert 0.5 < exact_norm(clipped) <= 1.0


def test_clipping_keeps_the_direction_and_the_original():
    vector = vectors(1, 50.0, False)
    kept = vector.clone()
    clipped, inside = clip_vector(vector, Flat(1.0), NAMES, OFFSETS)
    assert not inside
    assert torch.equal(vector, kept)
    assert float(torch.nn.functional.cosine_similarity(clipped, vector, dim=0)) == pytest.approx(
        1, abs=1e-6
    )
    assert exact_norm(clipped) == pytest.approx(1.0, abs=4e-5)


def test_clipping_by_layer_bounds_each_layer_by_its_share():
    vector = torch.zeros(40)
    vector[:15], vector[33:] = 100.0, 0.001
    clipped, inside = clip_vector(vector, PerLayer(1.0), NAMES, OFFSETS)
    assert not inside
    assert exact_norm(clipped[:15]) == pytest.approx(1 / math.sqrt(2), abs=4e-5)
    assert torch.equal(clipped[15:], vector[15:])


def test_layers_are_found_by_their_names():
    assert PerLayer(1.0).groups(NAMES) == ((0, 1), (2, 3))
    assert PerLayer(1.0).groups(("a.b.weight", "a.c.weight", "a.b.bias")) == ((0, 2), (1,))
    for clip in (Flat(1.0), Quantile(1.0), PublicMedian(), NoClip(), ModelClip(1.0)):
        assert clip.groups(NAMES) == ((0, 1, 2, 3),)


def test_group_norms_are_the_norms_of_the_parts():
    vector = vectors(2, 1.0, False)
    whole = group_norms(vector, ((0, 1), (2, 3)), OFFSETS)
    assert whole.tolist() == pytest.approx(
        [exact_norm(vector[:15]), exact_norm(vector[15:])], rel=2e-5
    )
    assert float(group_norms(vector, ((0, 1, 2, 3),), OFFSETS)) == pytest.approx(
        exact_norm(vector), rel=2e-5
    )


def test_no_clip_bounds_nothing_and_says_so():
    vector = vectors(3, 1e6, False)
    clipped, inside = clip_vector(vector, NoClip(), NAMES, OFFSETS)
    assert torch.equal(clipped, vector)
    assert inside
    assert NoClip().clip_norm == math.inf


@pytest.mark.parametrize("clip", [Flat, PerLayer, Quantile, ModelClip])
@pytest.mark.parametrize("level", [0, -1, math.nan, math.inf])
def test_an_impossible_level_is_refused(clip, level):
    with pytest.raises(DpflError, match="clip level"):
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
    with pytest.raises(DpflError, match="clip level"):
        Quantile(1.0).adapt(math.nan)


def test_the_public_median_is_the_median_and_keeps_its_level_without_one():
    assert PublicMedian().adapt([3.0, 1.0, 2.0]).clip_norm == 2.0
    for useless in ([], [0.0], [math.nan], [math.inf]):
        assert PublicMedian(1.5).adapt(useless).clip_norm == 1.5
