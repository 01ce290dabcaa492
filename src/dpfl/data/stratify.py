"""Whole numbers and random samples in given proportions."""

import numpy as np


def apportion(weights: np.ndarray, total: int) -> np.ndarray:
    """Divides a whole number in proportion to weights, by the largest remainders.

    Args:
        weights: The weights.
        total: What the numbers add up to.

    Returns:
        The numbers.
    """
    exact = np.asarray(weights, dtype=np.float64) / np.sum(weights) * total
    counts = np.floor(exact).astype(np.int64)
    lacking = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:lacking]] += 1
    return counts


def stratify(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draws a random sample that has the classes in their original proportions.

    Args:
        labels: The class of each sample.
        count: The size of the sample.
        rng: The generator.

    Returns:
        Indices, ascending.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    parts = [
        rng.choice(np.flatnonzero(labels == label), size, replace=False)
        for label, size in zip(classes, apportion(sizes, count), strict=True)
    ]
    return np.sort(np.concatenate(parts))
