import numpy as np
import pytest
import torch

from dpfl.data import catalog
from dpfl.errors import DpflError


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("DPFL_DATA", raising=False)


def test_npz_by_its_path(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, x=np.random.default_rng(0).random((50, 3)), y=np.arange(50) % 5)
    source = catalog.load(str(path), classes=5)
    assert source.test is None
    assert (len(source.train), source.train.classes, source.train.name) == (50, 5, "own")
    shared = catalog.load(str(path), test_share=0.2)
    assert (len(shared.train), len(shared.test), shared.train.classes) == (40, 10, 5)
    assert not torch.equal(shared.test.x, catalog.load(str(path), test_share=0.2, seed=1).test.x)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": np.ones((2, 2)) * 1j}, "complex"),
        ({"y": np.array([0, np.nan])}, "whole numbers"),
        ({"y_test": np.array([0, 8_000_000_000])}, "classes"),
        ({"y": np.array([0, 8_000_000_000])}, "number them from 0 to 1"),
        ({"classes": True}, "whole number"),
        ({"classes": 0}, "at least 1"),
        ({"x_test": None}, "both x_test and y_test"),
    ],
)
def test_odd_tensors_are_refused(given, said):
    whole = {
        "x": np.ones((2, 2)),
        "y": np.arange(2),
        "x_test": np.ones((2, 2)),
        "y_test": np.arange(2),
    }
    with pytest.raises(DpflError, match=said):
        catalog.tensors(**whole | given)


@pytest.mark.parametrize("share", [-0.1, 1, float("nan"), True, "half"])
def test_a_share_outside_0_to_1_is_refused(tmp_path, share):
    with pytest.raises(DpflError, match="test_share"):
        catalog.npz(tmp_path / "own.npz", test_share=share)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("mnits", {}, "did you mean 'mnist'"),
        ("mnist", {"split": "digits"}, "no option 'split'"),
        ("emnist", {"splitt": "digits"}, "did you mean 'split'"),
    ],
)
def test_unknown_names_and_options_are_refused(name, options, said):
    with pytest.raises(DpflError, match=said):
        catalog.load(name, **options)
