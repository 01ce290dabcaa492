"""Every clip answers each question as its words say."""

from __future__ import annotations

import pytest

from dpfl.privacy import Flat, NoClip, PerLayer, PublicMedian, Quantile
from dpfl.privacy.mechanisms.clips.adaptive_clip import ShareOfMean
from dpfl.privacy.mechanisms.clips.clip import Clip, ModelClip
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip

BOUNDS = ("bounds_vector", "bounds_nothing", "bounds_model", "bounds_coefficients")
FOLLOWS = ("follows_count", "follows_public", "follows_raw")


@pytest.mark.parametrize(
    ("clip", "bounded", "followed"),
    [
        (Flat(1.0), "bounds_vector", None),
        (PerLayer(1.0), "bounds_vector", None),
        (ModelClip(1.0), "bounds_model", None),
        (NoClip(), "bounds_nothing", None),
        (HaarClip(1.0), "bounds_coefficients", None),
        (HaarClip(1.0, public=True), "bounds_coefficients", "follows_public"),
        (Quantile(1.0), "bounds_vector", "follows_count"),
        (PublicMedian(1.0), "bounds_vector", "follows_public"),
        (ShareOfMean(1.0), "bounds_vector", "follows_raw"),
    ],
)
def test_one_answer_is_yes(clip: Clip, bounded: str, followed: str | None) -> None:
    assert [name for name in BOUNDS if getattr(clip, name)] == [bounded]
    assert [name for name in FOLLOWS if getattr(clip, name)] == ([followed] if followed else [])
    assert bool(clip.adapts_to) == (followed is not None)


def test_only_a_clip_from_a_run_without_privacy_gives_its_rounds() -> None:
    assert ShareOfMean(1.0, rounds=7).pilot_rounds == 7
    assert ShareOfMean(1.0).pilot_rounds is None
    assert Flat(1.0).pilot_rounds is None
