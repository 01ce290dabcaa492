"""Labels that no task can be trained on are refused with a sentence."""

import numpy as np
import pytest
import torch

from dpfl.errors import DpflError
from dpfl.tasks.label_checks import between, check_positive, whole


def test_whole_numbers_pass_in_any_type() -> None:
    assert whole(np.array([0.0, 2.0]), "Labels").tolist() == [0, 2]
    assert whole(torch.tensor([1, 3], dtype=torch.int8), "Labels").dtype == torch.int64


@pytest.mark.parametrize("values", [[0.5], [np.nan], [np.inf], [1j]])
def test_anything_else_is_refused(values: list[complex]) -> None:
    with pytest.raises(DpflError, match="whole numbers"):
        whole(np.array(values), "Labels")


def test_a_range_is_closed_at_both_ends() -> None:
    labels = torch.tensor([0, 4])
    assert between(labels, 0, 4, "Labels") is labels
    for least, most in ((1, 4), (0, 3)):
        with pytest.raises(DpflError, match="run from 0 to 4"):
            between(labels, least, most, "Labels")


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_weights_are_positive_numbers(value: float) -> None:
    check_positive((1.0, 0.1), "Weights")
    with pytest.raises(DpflError, match="positive"):
        check_positive((1.0, value), "Weights")
