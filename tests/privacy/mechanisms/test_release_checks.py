"""Which parts of a release may be together."""

from __future__ import annotations

import pytest

from dpfl.errors import DpflError
from dpfl.privacy import All, Flat, Gaussian, NoClip, Quantile, Release
from dpfl.privacy.mechanisms.clip import ModelClip
from dpfl.privacy.mechanisms.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noise_shares import NoiseShares

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


def test_parts_that_fit_are_not() -> None:
    Release(All(), Flat(1.0), NOISE, noise_shares=NoiseShares(3))
    Release(All(), Quantile(1.0), NOISE, noise_shares=NoiseShares(3))
    Release(All(), HaarClip(1.0), HaarNoise(1.0))
