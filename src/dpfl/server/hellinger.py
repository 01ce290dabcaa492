"""Hellinger weights (HW-DPFL, eq. 5-8): how much a client counts, by how far its labels are from balanced.

The paper sets weights in proportion to the *distance*, which favours the most skewed clients and says nothing where all are
balanced; its text speaks of similarity. A label histogram is private data: released as it is, no epsilon holds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpfl.errors import DpflError
from dpfl.privacy.events import ADD_REMOVE, REPLACE

SENSITIVITY = {ADD_REMOVE: 1.0, REPLACE: math.sqrt(2)}
"""L2 sensitivity of a vector of counts: one count moves by one, or two do."""

KINDS = ("distance", "similarity")


def distribution(counts: ArrayLike) -> np.ndarray:
    """Counts over the last axis as shares; a client of whom nothing is known (all zero) is taken as balanced."""
    values = np.asarray(counts, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise DpflError("A label histogram needs at least one class.")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise DpflError("A label histogram needs finite counts of at least 0.")
    largest = values.max(axis=-1, keepdims=True)
    filled = np.where(largest > 0, values / np.where(largest > 0, largest, 1.0), 1.0)  # so that the sum cannot overflow
    return filled / filled.sum(axis=-1, keepdims=True)


def hellinger_distance(counts: ArrayLike, reference: ArrayLike | None = None) -> np.ndarray:
    """h = |sqrt(G) - sqrt(S)| / sqrt(2) over the last axis (6), with S balanced where no reference is given; from 0 to 1."""
    shares = distribution(counts)
    standard = distribution(np.ones(shares.shape[-1]) if reference is None else reference)
    if standard.shape != shares.shape[-1:]:
        raise DpflError(f"The reference has {standard.size} classes, but the histograms have {shares.shape[-1]}.")
    distance: np.ndarray = np.linalg.norm(np.sqrt(shares) - np.sqrt(standard), axis=-1) / math.sqrt(2)
    return np.minimum(distance, 1.0)


def hellinger_weights(counts: ArrayLike, kind: str = "similarity", reference: ArrayLike | None = None) -> np.ndarray:
    """tau_k for every row of counts, adding up to 1: h_k / sum h (8), or the same of 1 - h; uniform where all are zero."""
    if kind not in KINDS:
        raise DpflError(f"There are no Hellinger weights {kind!r}; choose one of {', '.join(KINDS)}.")
    distances = np.atleast_1d(hellinger_distance(counts, reference))
    scores = distances if kind == "distance" else 1 - distances
    scores = np.where(scores > 1e-12, scores, 0.0)  # rounding: balanced clients are at a distance of 0
    return distribution(scores)


def private_histogram(
    counts: ArrayLike, multiplier: float, rng: np.random.Generator, neighbours: str = ADD_REMOVE
) -> np.ndarray:
    """Shares from noisy counts: Gaussian noise for the sensitivity, then clamp and normalise, which is free.

    It costs one `gaussian(multiplier)` event, to be debited before it leaves the client.
    """
    if not (multiplier > 0 and math.isfinite(multiplier)):
        raise DpflError(f"The noise multiplier of the histogram must be a positive number, not {multiplier}.")
    if neighbours not in SENSITIVITY:
        raise DpflError(f"There are no neighbours {neighbours!r}; choose one of {', '.join(SENSITIVITY)}.")
    exact = np.asarray(counts, dtype=np.float64)
    if exact.ndim != 1 or not exact.size or not np.isfinite(exact).all():
        raise DpflError("A private histogram needs one finite count a class.")
    noisy = exact + multiplier * SENSITIVITY[neighbours] * rng.standard_normal(exact.shape)
    return distribution(np.maximum(noisy, 0.0))
