"""Where the files of a data set are looked for."""

import pytest

from dpfl.data import catalog
from dpfl.data.sources.folders import data_folder
from dpfl.errors import DpflError
from tests.data.writers import write_mnist


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("DPFL_DATA", raising=False)


def test_the_folder_comes_from_the_environment(tmp_path, monkeypatch):
    write_mnist(tmp_path / "fashion-mnist")
    monkeypatch.setenv("DPFL_DATA", str(tmp_path))
    assert catalog.fashion_mnist().train.name == "fashion-mnist"
    assert data_folder("elsewhere").name == "elsewhere"


def test_the_folder_is_else_the_users_cache():
    assert "dpfl" in str(data_folder())


def test_a_missing_file_is_named_with_three_ways_out(tmp_path):
    with pytest.raises(DpflError, match="train-images-idx3-ubyte of mnist") as caught:
        catalog.mnist(tmp_path)
    for way in ("dpfl data get mnist", "DPFL_DATA", "mnist-sample"):
        assert way in str(caught.value)


def test_the_folder_of_another_data_set_is_not_taken_for_ones_own(tmp_path):
    write_mnist(tmp_path / "mnist")
    assert len(catalog.mnist(tmp_path / "mnist").train) == 40
    with pytest.raises(DpflError, match="fashion-mnist is not in"):
        catalog.fashion_mnist(tmp_path / "mnist")
