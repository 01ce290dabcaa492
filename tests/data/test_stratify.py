"""Largest remainders, and samples in the proportions of the classes."""

import numpy as np

from dpfl.data.stratify import apportion, stratify


def test_the_largest_remainders_get_the_rest() -> None:
    # Shares of 10: 4.7, 4.0, 1.3; one is lacking, and 0.7 is the largest remainder.
    assert apportion(np.array([47, 40, 13]), 10).tolist() == [5, 4, 1]
    assert apportion(np.array([1, 1, 1]), 2).tolist() == [1, 1, 0]


def test_a_sample_holds_the_classes_in_proportion() -> None:
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    rows = stratify(labels, 50, np.random.default_rng(0))
    assert np.bincount(labels[rows]).tolist() == [30, 15, 5]
    assert len(set(rows.tolist())) == 50
    assert rows.tolist() == sorted(rows.tolist())
    assert rows.tolist() != stratify(labels, 50, np.random.default_rng(1)).tolist()
