"""One flat vector leaves its clip with no more than the level, and in its direction."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.privacy import Flat, NoClip, PerLayer, PublicMedian, Quantile
from dpfl.privacy.mechanisms.clips.clip import ModelClip
from dpfl.privacy.mechanisms.clips.vector_clipping import clip_vector, group_norms

NAMES = ("conv.weight", "conv.bias", "head.weight", "head.bias")
OFFSETS = (0, 12, 15, 33, 40)
CLIPS = [Flat, PerLayer, Quantile, PublicMedian, ModelClip]

levels = st.floats(1e-3, 1e3)
scales = st.sampled_from(
    [0.0, 1e-42, 1e-30, 1e-10, 1e-3, 0.3, 1.0, 7.0, 1e4, 1e10, 1e18, 1e25, 1e30, 3e38]
)


def exact_norm(vector):
    return float(vector.double().norm())


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
