"""Published images are read from their files, and scaled by published constants."""

from importlib import resources

import numpy as np
import pytest

from dpfl.data import catalog
from dpfl.errors import DpflError
from tests.data.writers import images, write_cifar10, write_mnist


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("DPFL_DATA", raising=False)


def test_who_changes_the_embedded_sample_changes_a_copy():
    catalog.sample().train.x.zero_()
    catalog.sample().test.y.zero_()
    again = catalog.sample()
    assert again.train.x.any()
    assert again.test.y.any()


def test_the_embedded_sample():
    source = catalog.sample()
    assert source.train.x.shape == (8000, 1, 28, 28)
    assert source.test.x.shape == (2000, 1, 28, 28)
    assert source.train.classes == 10
    # The counts of MNIST's own 60,000 and 10,000 images, in proportion.
    whole = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    assert np.abs(np.bincount(source.train.y) - whole * 8000 / 60000).max() < 1
    assert np.abs(np.bincount(source.test.y) - np.bincount(source.test.y).mean()).max() < 30
    assert float(source.train.x.mean()) == pytest.approx(0, abs=0.02)
    assert float(source.train.x.std()) == pytest.approx(1, abs=0.02)
    assert (resources.files("dpfl.data") / "mnist_sample.npz").stat().st_size <= 2_000_000


@pytest.mark.parametrize("place", ["mnist", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_from_its_folder_or_the_folder_itself(tmp_path, place, suffix):
    write_mnist(tmp_path / place, suffix)
    source = catalog.load("mnist", tmp_path)
    assert source.train.x.shape == (40, 1, 28, 28)
    expected = (images(40)[3, 5, 7] / 255 - 0.1307) / 0.3081
    assert float(source.train.x[3, 0, 5, 7]) == pytest.approx(expected, rel=1e-5)
    assert source.test.y.tolist() == list(range(10))


def test_all_images_of_mnist_can_be_merged_and_dealt_anew(tmp_path):
    write_mnist(tmp_path / "mnist")
    source = catalog.load("mnist", tmp_path, merged=True)
    assert (len(source.train), len(source.test)) == (37, 2), "of 50, three quarters and a twentieth"
    every = catalog.load("mnist", tmp_path)
    known = {tuple(image.flatten().tolist()) for image in (*every.train.x, *every.test.x)}
    assert all(
        tuple(image.flatten().tolist()) in known for image in (*source.train.x, *source.test.x)
    )


def test_emnist_is_turned_upright(tmp_path):
    write_mnist(
        tmp_path / "emnist" / "gzip", train="emnist-digits-train", test="emnist-digits-test"
    )
    source = catalog.load("emnist-digits", tmp_path)
    expected = (images(40)[0, 5, 7] / 255 - 0.1736) / 0.3317
    assert float(source.train.x[0, 0, 7, 5]) == pytest.approx(expected, rel=1e-5)
    assert source.train.x.is_contiguous()


def test_emnist_letters_are_numbered_from_zero(tmp_path):
    write_mnist(tmp_path, train="emnist-letters-train", test="emnist-letters-test", first=1)
    source = catalog.load("emnist", tmp_path, split="letters")
    assert source.train.classes == 26
    assert int(source.train.y.min()) == 0
    with pytest.raises(DpflError, match="did you mean 'letters'"):
        catalog.emnist("leters", tmp_path)


@pytest.mark.parametrize(
    "place", ["cifar10/cifar-10-batches-bin", "cifar10", "cifar-10-batches-bin", "."]
)
def test_cifar10_from_its_folder_or_the_parent(tmp_path, place):
    write_cifar10(tmp_path / place)
    source = catalog.load("cifar10", tmp_path)
    assert source.train.x.shape == (20, 3, 32, 32)
    pixel = (tmp_path / place / "test_batch.bin").read_bytes()[1 + 2 * 1024]
    assert float(source.test.x[0, 2, 0, 0]) == pytest.approx(
        (pixel / 255 - 0.4465) / 0.2616, rel=1e-5
    )


def test_an_incomplete_cifar10_names_the_file(tmp_path):
    write_cifar10(tmp_path / "cifar10")
    (tmp_path / "cifar10" / "data_batch_4.bin").unlink()
    with pytest.raises(DpflError, match=r"data_batch_4.bin of cifar10"):
        catalog.cifar10(tmp_path)
    write_cifar10(tmp_path)
    with pytest.raises(DpflError, match="several folders"):
        catalog.cifar10(tmp_path)
