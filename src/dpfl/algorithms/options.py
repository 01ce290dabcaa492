"""Words of an experiment file to parts."""

from __future__ import annotations

from dpfl.bad_values import choose
from dpfl.privacy import All, FixedSize, Flat, Gaussian, PerLayer, PoissonSize
from dpfl.privacy.mechanisms.clip import Clip
from dpfl.privacy.mechanisms.haar_release import HaarNoise
from dpfl.privacy.mechanisms.noise import Uncalibrated
from dpfl.privacy.mechanisms.sampling import Sampling
from dpfl.server.weights import SizeWeights, UniformWeights, Weights

VARIANTS = {"sound": True, "published": False}


def cohort_of(size: int | None) -> Sampling:
    return All() if size is None else FixedSize(size)


def weights_of(name: str) -> Weights:
    parts: dict[str, Weights] = {"uniform": UniformWeights(), "size": SizeWeights()}
    return choose("weights", name, parts)


def layer_clip_of(name: str, level: float) -> Clip:
    """Clips of one fixed level."""
    parts: dict[str, Clip] = {"flat": Flat(level), "per-layer": PerLayer(level)}
    return choose("clipping", name, parts)


def haar_noise_of(
    multiplier: float | None,
    weights: str,
    by_layer: bool,
    energies: tuple[float, ...],
    lemma: bool = False,
    portion: float | None = None,
) -> HaarNoise | Uncalibrated:
    """Noise on Haar coefficients, as given, or to be planned from the budget."""
    given = 1.0 if multiplier is None else multiplier
    noise = HaarNoise(given, weights, by_layer, energies, lemma=lemma, portion=portion)
    return Uncalibrated(noise) if multiplier is None else noise


def poisson_cohort_of(size: int | None) -> Sampling:
    return All() if size is None else PoissonSize(size)


def noise_of(multiplier: float | None) -> Gaussian | Uncalibrated:
    """Noise as given, or to be planned from the budget."""
    return Uncalibrated() if multiplier is None else Gaussian(multiplier)
