"""Hellinger weights (HW-DPFL, eq. 5-8): a client counts by how far its labels are from balanced.

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
    """Computes h = |sqrt(G) - sqrt(S)| / sqrt(2) over the last axis (eq. 6).

    Args:
        counts: Label counts, with the classes on the last axis. They are divided by their sum.
        reference: Counts to compare with; balanced classes by default.

    Returns:
        The distances, from 0 to 1.

    Raises:
        DpflError: The reference has another number of classes.
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
    """Computes h or 1 - h for every row of counts, each from its own labels alone.

    Args:
        counts: One row of label counts per client.
        kind: "distance" for h, "similarity" for 1 - h.
        reference: Counts to compare with; balanced classes by default.

    Returns:
        One score from 0 to 1 per row. Scores up to 1e-7 count as rounding and become 0.
    """
    require_name("kind of Hellinger weights", kind, KINDS)
    distances = np.atleast_1d(hellinger_distance(counts, reference))
    scores = distances if kind == "distance" else 1 - distances
    return np.where(scores > 1e-7, scores, 0.0)  # rounding: balanced clients are at a distance of 0


def hellinger_weights(
    counts: ArrayLike, kind: str = "similarity", reference: ArrayLike | None = None
) -> np.ndarray:
    """Computes tau_k = h_k / sum h for every row of counts (eq. 8), or the same of 1 - h.

    Args:
        counts: One row of label counts per client.
        kind: "distance" for h, "similarity" for 1 - h.
        reference: Counts to compare with; balanced classes by default.

    Returns:
        Weights that add up to 1; uniform where all scores are 0.
    """
    return distribution(hellinger_scores(counts, kind, reference))
