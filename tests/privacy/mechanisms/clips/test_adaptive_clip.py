"""Clips that follow what was observed: a check value for each."""

from __future__ import annotations

import math

import pytest

from dpfl.errors import DpflError
from dpfl.privacy import Flat, PublicMedian, Quantile
from dpfl.privacy.mechanisms.clips.adaptive_clip import ShareOfMean, public_median


def test_a_quantile_rises_where_too_many_are_clipped() -> None:
    clip = Quantile(2.0, quantile=0.5, rate=0.2)
    assert clip.adapt(0.0).clip_norm == pytest.approx(2.0 * math.exp(0.1))
    assert clip.adapt(1.0).clip_norm == pytest.approx(2.0 * math.exp(-0.1))
    assert clip.adapt(9.0) == clip.adapt(1.0)


def test_the_vector_and_the_count_share_the_noise_of_one_release() -> None:
    clip = Quantile(1.0, count_noise=4.0)
    vector = clip.vector_multiplier(1.5)
    assert vector**-2 + (2 * 4.0) ** -2 == pytest.approx(1.5**-2)
    with pytest.raises(DpflError, match="spends the whole release"):
        clip.vector_multiplier(8.0)


def test_public_norms_set_the_clip_where_they_can() -> None:
    assert PublicMedian(1.0).adapt([3.0, 1.0, 2.0]).clip_norm == 2.0
    assert public_median([math.inf], 5.0) == 5.0
    assert ShareOfMean(1.0, share=0.5).adapt([2.0, 4.0]).clip_norm == 1.5
    assert ShareOfMean(1.0).adapt([]).clip_norm == 1.0


def test_a_fixed_clip_does_not_adapt() -> None:
    assert Flat(1.0).adapt(0.3) == Flat(1.0)
    assert Quantile(1.0).adapt(0.3) != Quantile(1.0)
