"""The number of classes is declared, or that of the public test set."""

import numpy as np
import pytest

from dpfl.data import catalog
from dpfl.errors import DpflError


def test_the_number_of_classes_is_not_read_off_private_labels(tmp_path):
    x, y = np.ones((6, 2)), np.array([0, 1, 2, 0, 1, 2])
    with pytest.raises(DpflError, match="private labels are not counted: declare it"):
        catalog.tensors(x, y)
    assert catalog.tensors(x, y, classes=7).train.classes == 7
    assert catalog.tensors(x, y, x, y + 1).train.classes == 4
    with pytest.raises(DpflError, match="number them from 0 to 1"):
        catalog.tensors(x, y, x[:2], y[:2])
    np.savez(tmp_path / "own.npz", x=x, y=y, classes=9)
    assert catalog.npz(tmp_path / "own.npz").train.classes == 9
