import math

import numpy as np
import pytest
import torch

from dpfl.data import Dataset, tensors
from dpfl.errors import DpflError
from tests.data.samples import small


def test_a_dataset_knows_its_length_shape_and_hash():
    one, same = small(), small()
    assert len(one) == 100
    assert one.shape == (1, 4, 4)
    assert one.sha256 == same.sha256
    assert len(one.sha256) == 64
    changed = Dataset("small", one.x, one.y.roll(1), 10)
    assert changed.sha256 != one.sha256


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), "one label per sample"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), "empty"),
        (torch.full((2, 2), float("nan")), torch.zeros(2, dtype=torch.int64), "not finite"),
        (
            torch.tensor([[0.0, math.inf], [-math.inf, 0.0]]),
            torch.zeros(2, dtype=torch.int64),
            "not finite",
        ),
        (torch.zeros(2, 2), torch.tensor([0, 2]), "run from 0 to 2"),
        (torch.zeros(2, 2), torch.tensor([0, -1]), "run from -1"),
        (torch.zeros(2, 2, dtype=torch.float64), torch.tensor([0, 1]), "float64"),
    ],
)
def test_a_wrong_dataset_is_refused(x, y, said):
    with pytest.raises(DpflError, match=said):
        Dataset("wrong", x, y, 2)


def test_finite_values_whose_sum_is_not_are_taken():
    assert len(Dataset("large", torch.full((2, 2), 3e38), torch.tensor([0, 1]), 2)) == 2


def test_tensors_converts_arrays_of_any_numeric_type():
    x = np.array([[0, 255], [51, 102]], dtype=np.uint8)
    source = tensors(x, np.array([0.0, 1.0]), x, np.array([0, 2], dtype=np.int8))
    assert source.train.x.tolist() == [[0, 1], [pytest.approx(0.2), pytest.approx(0.4)]]
    assert source.train.classes == source.test.classes == 3
    with pytest.raises(DpflError, match="whole numbers"):
        tensors(x, np.array([0.5, 1.0]), x, np.array([0, 1]))
    with pytest.raises(DpflError, match="not numbers"):
        tensors(np.array([["a"], ["b"]]), np.array([0, 1]), x, np.array([0, 1]))
