"""Which parts of a release may be together."""

from __future__ import annotations

import pytest

from dpfl.errors import DpflError
from dpfl.privacy import All, Flat, Gaussian, NoClip, Poisson, Quantile, Release
from dpfl.privacy.mechanisms.clips.clip import ModelClip
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.update_release import UpdateRelease

NOISE = Gaussian(1.0)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"clip": NoClip(), "noise": NOISE}, "without a clip"),
        ({"clip": ModelClip(1.0), "noise": NOISE}, "clipped models"),
        ({"clip": HaarClip(1.0), "noise": NOISE}, "Haar coefficients"),
        ({"clip": Flat(1.0), "noise": NOISE, "shared_by": 1}, "at least 2 clients, not 1"),
        ({"clip": Flat(1.0), "noise": BandedNoise(1.0)}, "fixed turns"),
        ({"clip": Quantile(1.0), "noise": NOISE, "shared_by": 2}, "Quantile clipping"),
        ({"clip": Quantile(1.0), "noise": HaarNoise(1.0)}, "count of quantile clipping"),
        ({"clip": Flat(1.0), "noise_shares": NoiseShares(3)}, "A secure sum needs clipped"),
        ({"clip": Flat(1.0), "noise": NOISE, "divisor": 0.0}, "not by 0.0"),
    ],
)
def test_parts_that_no_proof_covers_are_refused(parts: dict[str, object], message: str) -> None:
    with pytest.raises(DpflError, match=message):
        Release(All(), **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"sensitivity_bound": 0.0}, "needs a bound"),
        ({"sensitivity_bound": float("nan")}, "needs a bound"),
        ({"protects": "person"}, "a sample or a client, not 'person'"),
        ({"sampling": Poisson(0.5)}, "No units are sampled"),
        ({"shared_by": 3}, "no divisor"),
        ({"divisor": 3.0}, "no divisor"),
        ({"divide_by_drawn": True}, "no divisor"),
        ({"clip": HaarClip(1.0), "noise": HaarNoise(1.0)}, "not bound its Haar"),
        ({"protects": "client", "sensitivity_bound": 1.9}, "give at least 2"),
    ],
)
def test_an_update_without_a_proof_is_refused(parts: dict[str, object], message: str) -> None:
    sound = {"sampling": All(), "clip": Flat(1.0), "noise": NOISE, "sensitivity_bound": 2.0}
    UpdateRelease(**sound)  # type: ignore[arg-type]
    with pytest.raises(DpflError, match=message):
        UpdateRelease(**sound | parts)  # type: ignore[arg-type]


def test_no_derived_class_is_proven_unless_it_says_so() -> None:
    class Derived(Release):
        """It may count anything."""

    class DerivedTwice(UpdateRelease):
        """As well."""

    assert Release.event_is_proven
    assert UpdateRelease.event_is_proven
    assert not Derived.event_is_proven
    assert not DerivedTwice.event_is_proven


def test_parts_that_fit_are_not() -> None:
    Release(All(), Flat(1.0), NOISE, noise_shares=NoiseShares(3))
    Release(All(), Quantile(1.0), NOISE, noise_shares=NoiseShares(3))
    Release(All(), HaarClip(1.0), HaarNoise(1.0))
