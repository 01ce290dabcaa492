"""Turns the words and numbers of an experiment file into the parts of an algorithm."""

from __future__ import annotations

from dpfl.bad_values import choose
from dpfl.deprecation import renamed_keywords
from dpfl.privacy import All, FixedSize, Flat, Gaussian, PerLayer, PoissonSize
from dpfl.privacy.mechanisms.clips.clip import Clip
from dpfl.privacy.mechanisms.noises.haar_release import HaarNoise
from dpfl.privacy.mechanisms.noises.noise import Uncalibrated
from dpfl.privacy.mechanisms.sampling import Sampling
from dpfl.server.aggregation.weights import SizeWeights, UniformWeights, Weights

VARIANTS = {"sound": True, "published": False}


def cohort_of(size: int | None) -> Sampling:
    """Returns the sampling of a cohort in a system without noise on the sum.

    Args:
        size: Exact number of clients per round; None for all.

    Returns:
        The sampling. A fixed size earns no discount from sampling.
    """
    return All() if size is None else FixedSize(size)


def poisson_cohort_of(size: int | None) -> Sampling:
    """Returns the sampling of a cohort in which each client takes part by its own coin.

    Args:
        size: Expected number of clients per round; None for all.

    Returns:
        The sampling.
    """
    return All() if size is None else PoissonSize(size)


def weights_of(name: str) -> Weights:
    """Returns the weights of that name.

    Args:
        name: "uniform" or "size".

    Returns:
        The weights.

    Raises:
        DpflError: There are no such weights.
    """
    parts: dict[str, Weights] = {"uniform": UniformWeights(), "size": SizeWeights()}
    return choose("weights", name, parts)


def layer_clip_of(name: str, clip_norm: float) -> Clip:
    """Returns the clip of that name, with a fixed norm.

    Args:
        name: "flat" or "per-layer".
        clip_norm: Largest L2 norm of the whole vector.

    Returns:
        The clip.

    Raises:
        DpflError: There is no such clip.
    """
    parts: dict[str, Clip] = {"flat": Flat(clip_norm), "per-layer": PerLayer(clip_norm)}
    return choose("clipping", name, parts)


def haar_noise_of(
    noise_multiplier: float | None,
    weights: str,
    by_layer: bool,
    energies: tuple[float, ...],
    lemma: bool = False,
    portion: float | None = None,
) -> HaarNoise | Uncalibrated:
    """Returns noise on Haar coefficients.

    Args:
        noise_multiplier: Noise standard deviation over sensitivity; None to plan it from the
            budget.
        weights: Weights of the coefficients: "paper", "orthonormal" or "matched".
        by_layer: Transform one parameter at a time.
        energies: Public energies of the bands, for matched weights.
        lemma: Add the noise of the paper's Lemma 2 only.
        portion: Portion of the noise that is added, where a paper adds less than it claims.

    Returns:
        The noise, or noise still to be planned.
    """
    multiplier = 1.0 if noise_multiplier is None else noise_multiplier
    noise = HaarNoise(multiplier, weights, by_layer, energies, lemma=lemma, portion=portion)
    return Uncalibrated(noise) if noise_multiplier is None else noise


@renamed_keywords(multiplier="noise_multiplier")
def noise_of(noise_multiplier: float | None) -> Gaussian | Uncalibrated:
    """Returns Gaussian noise.

    Args:
        noise_multiplier: Noise standard deviation over sensitivity; None to plan it from the
            budget.

    Returns:
        The noise, or noise still to be planned.
    """
    return Uncalibrated() if noise_multiplier is None else Gaussian(noise_multiplier)
