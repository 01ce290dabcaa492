"""Words of an experiment file to parts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from dpfl.errors import DpflError
from dpfl.privacy import All, FixedSize, Flat, Gaussian, PerLayer, PoissonSize
from dpfl.privacy.mechanisms.clip import Clip
from dpfl.privacy.mechanisms.haar_release import HaarNoise
from dpfl.privacy.mechanisms.noise import Uncalibrated
from dpfl.privacy.mechanisms.sampling import Sampling
from dpfl.server.weights import SizeWeights, UniformWeights, Weights

Part = TypeVar("Part")

VARIANTS = {"sound": True, "published": False}


def nearest(word: str, words: object) -> str:
    """A hint for a word that is not among those known."""
    known = sorted(words)  # type: ignore[call-overload]
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(known)}."


def choose(option: str, word: str, parts: Mapping[str, Part]) -> Part:
    if word not in parts:
        raise DpflError(f"There is no {option} {word!r}; {nearest(word, parts)}")
    return parts[word]


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
