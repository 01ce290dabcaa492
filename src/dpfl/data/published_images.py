"""Published data sets of images: MNIST and its relatives, and CIFAR-10."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from dpfl.bad_values import require_name
from dpfl.data.data_source import DataSource
from dpfl.data.dataset import Dataset
from dpfl.data.sources.files import (
    CIFAR10_TEST,
    CIFAR10_TRAIN,
    Arrays,
    read_cifar10,
    read_idx_pair,
    read_npz,
)
from dpfl.data.sources.folders import find
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.tasks import MultiClass

# Means and standard deviations that were published with the data sets: constants, so they cost no
# privacy.
MNIST_SCALE = ((0.1307,), (0.3081,))
FASHION_MNIST_SCALE = ((0.2860,), (0.3530,))
EMNIST_SCALE = ((0.1736,), (0.3317,))
CIFAR10_SCALE = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
EMNIST_CLASSES = {
    "digits": 10,
    "mnist": 10,
    "letters": 26,
    "balanced": 47,
    "bymerge": 47,
    "byclass": 62,
}

SCALES = {
    **dict.fromkeys(("mnist-sample", "mnist"), MNIST_SCALE),
    "fashion-mnist": FASHION_MNIST_SCALE,
    **{f"emnist-{split}": EMNIST_SCALE for split in EMNIST_CLASSES},
    "cifar10": CIFAR10_SCALE,
}
"""Mean and standard deviation of the channels of images between 0 and 1, by the name of the data.
"""

SHAPES = {
    **dict.fromkeys(("mnist-sample", "mnist", "fashion-mnist", "emnist"), ((1, 28, 28), 10)),
    **{f"emnist-{split}": ((1, 28, 28), classes) for split, classes in EMNIST_CLASSES.items()},
    "cifar10": ((3, 32, 32), 10),
}
"""The shape of a sample and the number of classes, as published. No file has to be read for them.
"""

Scale = tuple[tuple[float, ...], tuple[float, ...]]


def sample() -> DataSource:
    """Loads the 10,000 images of MNIST that come with the package.

    Returns:
        8,000 images to train on and 2,000 to test on.
    """
    return _source("mnist-sample", _sample_bytes(), 10, MNIST_SCALE)


@cache
def _sample_bytes() -> Arrays:
    """Reads the packaged images once per process."""
    file = resources.files("dpfl.data") / "mnist_sample.npz"
    with resources.as_file(file) as path:
        arrays = read_npz(path)
    assert arrays.test is not None
    return Arrays(arrays.x, arrays.y, *arrays.test)


def mnist(data_dir: str | Path | None = None, merged: bool = False) -> DataSource:
    """Reads MNIST.

    Args:
        data_dir: The folder of all data sets.
        merged: Whether all images are shuffled first, as in some papers' code: three quarters to
            train on, and a twentieth, drawn at random, to test on.

    Returns:
        The source; with its own test set unless merged.
    """
    return _source(
        "mnist", _merge(_read_idx("mnist", "train", "t10k", data_dir), merged), 10, MNIST_SCALE
    )


def fashion_mnist(data_dir: str | Path | None = None, merged: bool = False) -> DataSource:
    """Reads Fashion-MNIST.

    Args:
        data_dir: The folder of all data sets.
        merged: As for `mnist`.

    Returns:
        The source.
    """
    arrays = _merge(_read_idx("fashion-mnist", "train", "t10k", data_dir), merged)
    return _source("fashion-mnist", arrays, 10, FASHION_MNIST_SCALE)


def emnist(split: str = "digits", data_dir: str | Path | None = None) -> DataSource:
    """Reads EMNIST. Its files have the images transposed and number letters from 1; both are
    undone.

    Args:
        split: The name of the split, such as "digits" or "letters".
        data_dir: The folder of all data sets.

    Returns:
        The source.

    Raises:
        DpflError: There is no such split.
    """
    require_name("EMNIST split", split, EMNIST_CLASSES)
    arrays = _read_idx(
        "emnist", f"emnist-{split}-train", f"emnist-{split}-test", data_dir, within="gzip"
    )
    first = 1 if split == "letters" else 0
    upright = Arrays(
        arrays.x.transpose(0, 2, 1),
        arrays.y.astype(np.int64) - first,
        arrays.x_test.transpose(0, 2, 1),
        arrays.y_test.astype(np.int64) - first,
    )
    return _source(f"emnist-{split}", upright, EMNIST_CLASSES[split], EMNIST_SCALE)


def cifar10(data_dir: str | Path | None = None) -> DataSource:
    """Reads CIFAR-10.

    Args:
        data_dir: The folder of all data sets.

    Returns:
        The source.

    Raises:
        DpflError: The files are missing, or lie in several folders.
    """
    folders = {
        find("cifar10", file, data_dir, within="cifar-10-batches-bin").parent
        for file in CIFAR10_TRAIN
    }
    folder = find("cifar10", CIFAR10_TEST[0], data_dir, within="cifar-10-batches-bin").parent
    if folders != {folder}:
        raise DpflError("The files of cifar10 lie in several folders: put all six into one.")
    return _source("cifar10", read_cifar10(folder), 10, CIFAR10_SCALE)


def _read_idx(
    data_set: str, train: str, test: str, data_dir: str | Path | None, within: str = ""
) -> Arrays:
    pairs = [
        read_idx_pair(
            find(data_set, f"{part}-images-idx3-ubyte", data_dir, within),
            find(data_set, f"{part}-labels-idx1-ubyte", data_dir, within),
        )
        for part in (train, test)
    ]
    return Arrays(*pairs[0], *pairs[1])


def _merge(arrays: Arrays, merged: bool) -> Arrays:
    if not merged:
        return arrays
    x, y = np.concatenate([arrays.x, arrays.x_test]), np.concatenate([arrays.y, arrays.y_test])
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: 3 * len(y) // 4], order[3 * len(y) // 4 :][: len(y) // 20]
    return Arrays(x[train], y[train], x[test], y[test])


def _source(name: str, arrays: Arrays, classes: int, scale: Scale) -> DataSource:
    return DataSource(
        Dataset(
            name,
            _normalise(arrays.x, scale),
            torch.from_numpy(arrays.y.astype(np.int64)),
            MultiClass(classes),
        ),
        Dataset(
            name,
            _normalise(arrays.x_test, scale),
            torch.from_numpy(arrays.y_test.astype(np.int64)),
            MultiClass(classes),
        ),
    )


def _normalise(pixels: np.ndarray, scale: Scale) -> torch.Tensor:
    """Converts bytes (n, height, width) or (n, channels, height, width) to float32 (n, channels,
    height, width).
    """
    mean, deviation = (torch.tensor(values).reshape(-1, 1, 1) for values in scale)
    images = torch.tensor(pixels, dtype=torch.float32)
    images = images.unsqueeze(1) if images.ndim == 3 else images
    return images.div_(255).sub_(mean).div_(deviation).contiguous()
