"""Hellinger weights (HW-DPFL, eq. 5-8): how much a client counts, by how far its labels are from
balanced.

The paper sets weights in proportion to the *distance*, which favours the most skewed clients and
says nothing where all are balanced; its text speaks of similarity. A label histogram is private
data: released as it is, no epsilon holds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpfl.bad_values import require_name
from dpfl.errors import DpflError
from dpfl.privacy.queries.histogram import distribution

KINDS = ("distance", "similarity")


def hellinger_distance(counts: ArrayLike, reference: ArrayLike | None = None) -> np.ndarray:
    """h = |sqrt(G) - sqrt(S)| / sqrt(2) over the last axis (6), with S balanced where no reference
    is given; from 0 to 1.
    """
    shares = distribution(counts)
    standard = distribution(np.ones(shares.shape[-1]) if reference is None else reference)
    if standard.shape != shares.shape[-1:]:
        raise DpflError(
            f"The reference has {standard.size} classes, but the histograms have "
            f"{shares.shape[-1]}."
        )
    distance: np.ndarray = np.linalg.norm(np.sqrt(shares) - np.sqrt(standard), axis=-1) / math.sqrt(
        2
    )
    return np.minimum(distance, 1.0)


def hellinger_scores(
    counts: ArrayLike, kind: str = "similarity", reference: ArrayLike | None = None
) -> np.ndarray:
    """h or 1 - h for every row of counts, each by its own labels alone."""
    require_name("kind of Hellinger weights", kind, KINDS)
    distances = np.atleast_1d(hellinger_distance(counts, reference))
    scores = distances if kind == "distance" else 1 - distances
    return np.where(scores > 1e-7, scores, 0.0)  # rounding: balanced clients are at a distance of 0


def hellinger_weights(
    counts: ArrayLike, kind: str = "similarity", reference: ArrayLike | None = None
) -> np.ndarray:
    """tau_k for every row of counts, adding up to 1: h_k / sum h (8), or the same of 1 - h; uniform
    where all are zero.
    """
    return distribution(hellinger_scores(counts, kind, reference))
