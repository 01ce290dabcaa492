"""Records of dpfl 0.1 (format 1), which wrote parts by the names of their classes and attributes.

A run of that version can be read, compared, reported and verified. It cannot be resumed: its
releases were named by other digests, so a round that is made again would be paid for twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfl.codec import TAG

PARTS: dict[str, tuple[str, dict[str, str]]] = {
    "All": ("sampling.all", {}),
    "Poisson": ("sampling.poisson", {}),
    "PoissonSize": ("sampling.poisson-size", {}),
    "FixedSize": ("sampling.fixed-size", {}),
    "FixedCohort": ("sampling.fixed-cohort", {}),
    "Cyclic": ("sampling.cyclic", {}),
    "NoClip": ("clip.none", {"level": "clip_norm"}),
    "Flat": ("clip.flat", {"level": "clip_norm"}),
    "PerLayer": ("clip.per-layer", {"level": "clip_norm"}),
    "PublicMedian": ("clip.public-median", {"level": "clip_norm"}),
    "Model": ("clip.model", {"level": "clip_norm"}),
    "Quantile": (
        "clip.quantile",
        {"level": "clip_norm", "rate": "learning_rate", "count_noise": "count_stddev"},
    ),
    "ShareOfMean": ("clip.share-of-mean", {"level": "clip_norm"}),
    "HaarClip": ("clip.haar", {"level": "clip_norm"}),
    "HaarLevels": ("clip.haar-levels", {"level": "clip_norm"}),
    "HaarNoise": ("noise.haar", {"multiplier": "noise_multiplier"}),
    "Gaussian": ("noise.gaussian", {"multiplier": "noise_multiplier"}),
    "AtLeast": ("noise.floored-gaussian", {"multiplier": "noise_multiplier"}),
    "Planned": ("noise.uncalibrated", {}),
    "SecureGaussian": ("noise.secure-gaussian", {"multiplier": "noise_multiplier"}),
    "BandedNoise": ("noise.banded", {"multiplier": "noise_multiplier"}),
    "Shared": ("noise-shares", {}),
    "HellingerNoise": ("claim.hw-dpfl", {}),
    "TwoWayNoise": ("claim.nbafl", {}),
    "Release": ("release", {"realised": "divide_by_drawn", "sums": "noise_shares"}),
    "Upload": (
        "update-release",
        {"realised": "divide_by_drawn", "sums": "noise_shares", "moves": "sensitivity_bound"},
    ),
    "Survey": ("query.histogram", {"multiplier": "noise_multiplier"}),
    "MeanSurvey": ("query.mean", {"multiplier": "noise_multiplier"}),
    "ColumnSurvey": ("query.columns", {"multiplier": "noise_multiplier"}),
    "MetricSurvey": ("query.metric", {"multiplier": "noise_multiplier"}),
    "Budget": ("budget", {}),
    "SGD": ("optimiser.sgd", {"rate": "learning_rate"}),
    "PlannedSGD": ("optimiser.planned-sgd", {}),
    "Momentum": ("optimiser.momentum", {"rate": "learning_rate"}),
    "Adam": ("optimiser.adam", {"rate": "learning_rate"}),
    "AdaGrad": ("optimiser.adagrad", {"rate": "learning_rate"}),
    "CrossEntropy": ("objective.cross-entropy", {}),
    "Contrastive": ("objective.contrastive", {}),
    "Perturbed": ("objective.perturbed", {"deviation": "stddev"}),
    "Local": ("local-training", {}),
    "Fixed": ("steps.fixed", {}),
    "Ali": ("steps.ali", {"most": "most_tau"}),
    "Als": ("steps.als", {"most": "most_tau"}),
    "Uniform": ("weights.uniform", {}),
    "BySize": ("weights.by-size", {}),
    "Hellinger": ("weights.hellinger", {"survey": "query"}),
    "ServerUpdate": ("server-update", {"rate": "learning_rate"}),
    "Claim": ("claim", {}),
    "Algorithm": ("algorithm", {"one": "sample_unit", "uploads": "updates"}),
    "Decay": ("schedule.decay", {}),
    "Following": ("schedule.following", {}),
}
"""The tag of each class of that version, and the written names of the attributes that have another
name now.
"""


def translate(value: Any) -> Any:
    """Translates a record of format 1.

    Args:
        value: The record, or a value in it.

    Returns:
        The same with its parts as the codec writes them today.
    """
    if isinstance(value, list):
        return [translate(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    tag, names = PARTS.get(str(value.get(TAG)), (value.get(TAG), {}))
    words = {names.get(name, name): translate(item) for name, item in value.items() if name != TAG}
    return {TAG: tag} | words if TAG in value else words
