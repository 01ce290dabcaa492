"""Label counts: a distribution, exact or with noise for one count."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dpfl.errors import DpflError
from dpfl.privacy.queries.histogram import LabelQuery, distribution, private_histogram
from tests.privacy.queries.subject import RowSubject

SUBJECT = RowSubject(torch.zeros(30, 2), 30)


def test_counts_become_shares_and_no_counts_a_balanced_client() -> None:
    assert distribution([1, 3]).tolist() == [0.25, 0.75]
    assert distribution([0, 0]).tolist() == [0.5, 0.5]
    assert distribution([1e308, 1e308]).tolist() == [0.5, 0.5]
    for wrong in ([], [-1.0], [np.inf]):
        with pytest.raises(DpflError):
            distribution(wrong)


def test_a_query_without_noise_is_exact_and_one_with_noise_is_the_private_histogram() -> None:
    exact, noisy = LabelQuery(None), LabelQuery(2.0)
    assert exact.exact
    assert exact.answer(SUBJECT, np.random.default_rng(0)).tolist() == [1.0, 0.0]
    expected = private_histogram(SUBJECT.counts, 2.0, np.random.default_rng(0))
    assert np.array_equal(noisy.answer(SUBJECT, np.random.default_rng(0)), expected)


def test_an_answer_is_a_distribution_or_not_admitted() -> None:
    query = LabelQuery(2.0)
    assert query.admits(np.array([0.25, 0.75]), 30)
    assert not query.admits(np.array([0.5, 0.75]), 30)
    assert not query.admits(np.array([-0.5, 1.5]), 30)
