"""Whole numbers and random samples that keep given proportions."""

import numpy as np


def apportion(weights: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers in proportion to the weights that sum to the total (largest remainders)."""
    exact = np.asarray(weights, dtype=np.float64) / np.sum(weights) * total
    counts = np.floor(exact).astype(np.int64)
    lacking = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:lacking]] += 1
    return counts


def stratify(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The sorted indices of `count` random samples that hold the classes in their original
    proportions.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    chosen = [
        rng.choice(np.flatnonzero(labels == label), size, replace=False)
        for label, size in zip(classes, apportion(sizes, count), strict=True)
    ]
    return np.sort(np.concatenate(chosen))
