"""Haar parts of a release: the sound one has the multiplier that it states, the published one sigma
over m.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from dpfl.errors import DpflError
from dpfl.privacy import All, Flat, Gaussian, Poisson, Release
from dpfl.privacy.mechanisms.clips.clip import MARGIN
from dpfl.privacy.mechanisms.clips.vector_clipping import clip_vector
from dpfl.privacy.mechanisms.noises.haar import Haar
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.noises.noise import Uncalibrated
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares

M = 64


def release(
    bound: str = "weighted",
    weights: str = "paper",
    sigma: float = 1.0,
    level: float = 1.0,
    size: int = M,
) -> Release:
    clip = Flat(level) if bound == "gradient" else HaarClip(level, bound, weights)
    return Release(All(), clip, HaarNoise(sigma, weights)).for_model([size])


@pytest.mark.parametrize(
    ("bound", "share"), [("weighted", 1.0), ("coefficients", 1 / M), ("gradient", 1 / math.sqrt(M))]
)
def test_the_accountant_counts_with_what_the_clip_leaves_of_sigma(bound: str, share: float) -> None:
    made = release(bound, sigma=1.5)
    assert made.noise_multiplier == pytest.approx(1.5 * share)
    assert made.event(1).noise_multiplier == pytest.approx(1.5 * share)
    assert made.stated_event(1).noise_multiplier == 1.5


@pytest.mark.parametrize("weights", ["paper", "orthonormal"])
@pytest.mark.parametrize("size", [1, 5, 64, 100])
def test_a_sound_clip_keeps_every_unit_inside_the_level(weights: str, size: int) -> None:
    made = release(weights=weights, level=0.7, size=size)
    haar = Haar((size,))
    rows = (
        torch.randn(50, size, generator=torch.Generator().manual_seed(0))
        * torch.logspace(-3, 3, 50)[:, None]
    )
    for row in (*rows, torch.ones(size) * 100):
        clipped, inside = clip_vector(row, made.clip, ["x"], [0, size])
        norm = float(haar.weighted_norm(clipped[None], haar.weights(weights)))
        assert norm <= 0.7
        if not inside:
            assert norm == pytest.approx(0.7 * (1 - MARGIN), rel=1e-5)
            assert torch.allclose(clipped / clipped.norm(), row / row.norm(), atol=1e-5)


def test_the_constant_canary_tells_the_published_release_and_not_the_sound_one() -> None:
    """NOTES 4.5: the score sum(released) / (sigma C) is N(0, 1) without the canary, N(m, 1) with it
    as published.
    """
    for bound, shift in (("coefficients", 8.0), ("weighted", 1.0)):
        made = release(bound, size=8)
        canary, _ = clip_vector(torch.ones(8), made.clip, ["x"], [0, 8])
        rng = np.random.default_rng(0)
        scores = np.array(
            [
                [float(made.add_noise(x, rng).sum()) for x in (torch.zeros(8), canary)]
                for _ in range(2000)
            ]
        )
        assert scores[:, 0].std() == pytest.approx(1.0, rel=0.08)
        assert scores[:, 1].mean() - scores[:, 0].mean() == pytest.approx(shift, abs=0.15)


def test_orthonormal_haar_noise_is_plain_gaussian_noise() -> None:
    haar, plain = (
        release(weights="orthonormal", sigma=1.3),
        Release(All(), Flat(1.0), Gaussian(1.3)),
    )
    draws = [
        np.stack(
            [
                one.add_noise(torch.zeros(M), np.random.default_rng(seed)).numpy()
                for seed in range(3000)
            ]
        )
        for one in (haar, plain)
    ]
    for column in range(0, M, 9):
        assert stats.kstest(draws[0][:, column], "norm", args=(0, 1.3)).pvalue > 1e-4
    across = np.corrcoef(draws[0].T)[np.triu_indices(M, 1)]
    assert np.abs(across).max() < 5.5 / math.sqrt(3000)
    row = torch.randn(M, generator=torch.Generator().manual_seed(1)) * 3
    assert torch.allclose(
        clip_vector(row, haar.clip, ["x"], [0, M])[0],
        clip_vector(row, plain.clip, ["x"], [0, M])[0],
        atol=1e-5,
    )
    assert haar.event(1) == plain.event(1)


def test_noise_and_clip_must_share_their_weights() -> None:
    made = Release(
        All(), HaarClip(1.0, "weighted", "paper"), HaarNoise(1.0, "orthonormal")
    ).for_model([M])
    with pytest.raises(DpflError, match="same weights"):
        made.event(1)


def test_a_release_that_was_not_fitted_says_so() -> None:
    with pytest.raises(DpflError, match="does not know its model"):
        Release(All(), HaarClip(1.0), HaarNoise(1.0)).add_noise(
            torch.zeros(4), np.random.default_rng(0)
        )
    with pytest.raises(DpflError, match="64 numbers, not for 5"):
        release().add_noise(torch.zeros(5), np.random.default_rng(0))


def test_planned_haar_noise_becomes_haar_noise() -> None:
    made = (
        Release(Poisson(0.1), HaarClip(1.0), Uncalibrated(HaarNoise(1.0)))
        .for_model([10, 30])
        .with_noise(0.8)
    )
    assert made.noise == HaarNoise(0.8, ends=(30,))
    by_layer = Release(
        Poisson(0.1), HaarClip(1.0, by_layer=True), Uncalibrated(HaarNoise(1.0, by_layer=True))
    ).for_model([10, 30])
    assert by_layer.with_noise(0.8).noise == HaarNoise(0.8, by_layer=True, ends=(10, 30))
    assert by_layer.clip.ends == (10, 30)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_numbers_are_refused(bad: float) -> None:
    with pytest.raises(DpflError):
        HaarNoise(bad)
    with pytest.raises(DpflError):
        HaarClip(bad)
    with pytest.raises(DpflError, match="bounds"):
        HaarClip(1.0, "everything")


@pytest.mark.parametrize(
    ("lemma", "portion"), [(False, None), (False, 10.0), (True, None), (True, 0.5)]
)
def test_in_a_secure_sum_the_noise_is_what_is_counted_whatever_portion_is_stated(
    lemma: bool, portion: float | None
):
    """Fault: all of the stated noise was added, so that a portion of ten counted as ten times what
    was there.
    """
    noise = HaarNoise(0.1, lemma=lemma, portion=portion)
    made = Release(All(), HaarClip(2.0), noise, noise_shares=NoiseShares(8, 1)).for_model([M])
    assert made.integer_sum(1.0, 10).share * math.sqrt(7) == pytest.approx(
        made.noise_multiplier * 2.0
    )
    assert made.local_stddev == made.integer_sum(1.0, 10).share
