"""The data sets that have a name, and the user's own arrays and tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from dpfl.bad_values import is_number, refuse_unknown_options, require_name, require_whole, suggest
from dpfl.data.dataset import Array, Dataset, DataSource, make_dataset, names_classes, task_of
from dpfl.data.sources.files import (
    CIFAR10_TEST,
    CIFAR10_TRAIN,
    Arrays,
    read_cifar10,
    read_idx_pair,
    read_npz,
)
from dpfl.data.sources.folders import find
from dpfl.data.sources.medmnist_files import is_medmnist, read_medmnist
from dpfl.data.special_names import LEAF_WORDS, TABLE_WORDS, TABLES
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.tasks import MultiClass, Task

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
"""By the name of the data: mean and deviation of its channels, of images between 0 and 1."""

SHAPES = {
    **dict.fromkeys(("mnist-sample", "mnist", "fashion-mnist", "emnist"), ((1, 28, 28), 10)),
    **{f"emnist-{split}": ((1, 28, 28), classes) for split, classes in EMNIST_CLASSES.items()},
    "cifar10": ((3, 32, 32), 10),
}
"""The shape of a sample and the number of classes, as published: nothing need be read for them."""

Scale = tuple[tuple[float, ...], tuple[float, ...]]


def sample() -> DataSource:
    """10,000 images of MNIST that come with the package: 8,000 to train and 2,000 to test on."""
    return _source("mnist-sample", _sample_bytes(), 10, MNIST_SCALE)


@cache
def _sample_bytes() -> Arrays:
    """Unpacked once: a source has copies of its own."""
    file = resources.files("dpfl.data") / "mnist_sample.npz"
    with resources.as_file(file) as path:
        held = read_npz(path)
    assert held.test is not None
    return Arrays(held.x, held.y, *held.test)


def mnist(data_dir: str | Path | None = None, merged: bool = False) -> DataSource:
    """With its own test set; or `merged`, as some papers' code has it: three quarters of all images
    to train on, and a twentieth, drawn at random, to test on."""
    return _source(
        "mnist", _merged(_read_idx("mnist", "train", "t10k", data_dir), merged), 10, MNIST_SCALE
    )


def fashion_mnist(data_dir: str | Path | None = None, merged: bool = False) -> DataSource:
    """As `mnist`."""
    held = _merged(_read_idx("fashion-mnist", "train", "t10k", data_dir), merged)
    return _source("fashion-mnist", held, 10, FASHION_MNIST_SCALE)


def emnist(split: str = "digits", data_dir: str | Path | None = None) -> DataSource:
    """EMNIST, whose files hold the images transposed, and whose letters are labelled from 1."""
    require_name("EMNIST split", split, EMNIST_CLASSES)
    held = _read_idx(
        "emnist", f"emnist-{split}-train", f"emnist-{split}-test", data_dir, within="gzip"
    )
    first = 1 if split == "letters" else 0
    upright = Arrays(
        held.x.transpose(0, 2, 1),
        held.y.astype(np.int64) - first,
        held.x_test.transpose(0, 2, 1),
        held.y_test.astype(np.int64) - first,
    )
    return _source(f"emnist-{split}", upright, EMNIST_CLASSES[split], EMNIST_SCALE)


def cifar10(data_dir: str | Path | None = None) -> DataSource:
    folders = {
        find("cifar10", file, data_dir, within="cifar-10-batches-bin").parent
        for file in CIFAR10_TRAIN
    }
    folder = find("cifar10", CIFAR10_TEST[0], data_dir, within="cifar-10-batches-bin").parent
    if folders != {folder}:
        raise DpflError("The files of cifar10 lie in several folders: put all six into one.")
    return _source("cifar10", read_cifar10(folder), 10, CIFAR10_SCALE)


def npz(
    path: str | Path,
    classes: int | None = None,
    test_share: float = 0.0,
    seed: int = 0,
    task: Task | str | None = None,
    class_weights: Sequence[float] = (),
) -> DataSource:
    """The user's own .npz file with x and y, and x_test and y_test if there is a public test set.

    Where there is none, nothing is measured, unless a `test_share` of the records is declared
    public: a seeded stratified part.
    """
    if not is_number(test_share) or not 0 <= test_share < 1:
        raise DpflError(
            f"test_share is {test_share!r}: give the part of the records to make public, from 0 to "
            "below 1."
        )
    require_whole(seed, "seed", least=0)
    if is_medmnist(Path(path).expanduser()):
        return medmnist(path, classes, task, class_weights)
    held = read_npz(Path(path).expanduser(), test_share, seed, stratify=names_classes(task))
    x_test, y_test = held.test or (None, None)
    known = held.classes if classes is None else classes
    return tensors(held.x, held.y, x_test, y_test, Path(path).stem, known, task, class_weights)


def table(path: str | Path, **words: Any) -> DataSource:
    """The user's own table (CSV or Parquet; one file, or a folder with one file a site), declared
    by the words of [data]:

    >>> dpfl.data.table("stays.csv", label="died", task="binary", site="hospital", sites=["a", "b"],
    person="patient",
    ...     columns={"age": {"low": 0, "high": 110}, "sex": {"levels": ["f", "m"], "other": True}},
    test={"share": 0.2})
    """
    from dpfl.data.tables.tabular import own_table

    return own_table(Path(path).expanduser(), words)


def randhie(label: str = "any-visit", test: Mapping[str, Any] | None = None) -> DataSource:
    """The RAND Health Insurance Experiment: 20,190 person-years of 5,912 people at six sites, 20
    columns.

    `label` is "any-visit" (to a doctor in a year) or "visits" (how many); a fifth of the persons is
    declared public to test on.
    """
    from dpfl.data.tables.tabular import study

    return study(label, test)


def shakespeare(length: int = 64, test: Mapping[str, Any] | None = None) -> DataSource:
    """Shakespeare's 31 largest roles, 0.86 million characters: a role is a client, a passage of
    `length` characters a sample, and the next character the task. A tenth of the passages is
    declared public to test on."""
    from dpfl.data.sources.shakespeare_text import read

    return read(length, test)


def leaf(
    path: str | Path, shape: Sequence[int] | None = None, classes: int | None = None
) -> DataSource:
    """The user's own data in LEAF's JSON: a folder with train/ and test/, each of .json files, or
    one .json file.

    A user is a client; all users' test samples are one test set, which is thereby public. `shape`
    is that of a sample, where the file has it as one row.
    """
    from dpfl.data.sources.leaf_files import read_leaf

    return read_leaf(Path(path).expanduser(), shape, classes)


def medmnist(
    path: str | Path,
    classes: int | None = None,
    task: Task | str | None = None,
    class_weights: Sequence[float] = (),
) -> DataSource:
    """A file of MedMNIST; the number of classes is declared, or its test set's; several labels an
    image are the task "labels". Its images to validate on are left out."""
    x, y, x_test, y_test = read_medmnist(Path(path).expanduser())
    if y.ndim > 1 and task is None:
        task, classes = "labels", y.shape[1] if classes is None else classes
    return tensors(x, y, x_test, y_test, Path(path).stem, classes, task, class_weights)


def tensors(
    x: Array,
    y: Array,
    x_test: Array | None = None,
    y_test: Array | None = None,
    name: str = "own",
    classes: int | None = None,
    task: Task | str | None = None,
    class_weights: Sequence[float] = (),
) -> DataSource:
    """The user's own tensors or arrays, in any numeric type. The number of classes is declared, or
    that of the test set.

    `task` is a part of dpfl.tasks or its word: "classes" (unless said otherwise), "binary",
    "labels", "ordinal", "number", "counts" or "tokens", of which labels, levels and vocabulary are
    counted by `classes`.
    """
    known = task_of(name, task, classes, class_weights, y_test)
    if (x_test is None) != (y_test is None):
        raise DpflError("A test set has samples and labels: give both x_test and y_test, or none.")
    test = None if x_test is None or y_test is None else make_dataset(name, x_test, y_test, known)
    return DataSource(make_dataset(name, x, y, known), test)


def load(name: str, data_dir: str | Path | None = None, **options: Any) -> DataSource:
    """A source by its name, or by the path of a table or a folder of tables, of an .npz file, or of
    LEAF's JSON.
    """
    named = _named(data_dir)
    found = named.get(name) or _at(name)
    if found is None:
        raise DpflError(
            f"There is no data set {name!r}; {suggest(name, named)} Or give the path of an .npz, "
            ".csv or .parquet file."
        )
    read, allowed = found
    refuse_unknown_options(f"The data set {name!r}", options, allowed)
    return read(**options)


Reader = tuple[Callable[..., DataSource], Sequence[str]]
"""What reads a source, and the options that it has."""


def _named(data_dir: str | Path | None) -> dict[str, Reader]:
    readers: dict[str, Reader] = {
        "mnist-sample": (sample, ()),
        "randhie": (randhie, ("label", "test")),
        "shakespeare": (shakespeare, ("length", "test")),
        "mnist": (partial(mnist, data_dir), ("merged",)),
        "fashion-mnist": (partial(fashion_mnist, data_dir), ("merged",)),
        "cifar10": (lambda: cifar10(data_dir), ()),
        "emnist": (lambda split="digits": emnist(split, data_dir), ("split",)),
    }
    return readers | {
        f"emnist-{split}": (partial(emnist, split, data_dir), ()) for split in EMNIST_CLASSES
    }


def is_table(name: str) -> bool:
    """Whether a name is the path of a table, or of a folder of tables."""
    found = None if name in _named(None) else _at(name)
    return found is not None and found[1] is TABLE_WORDS


def is_owned(name: str, words: Mapping[str, Any]) -> bool:
    """Whether samples have owners of their own: a study's sites, a table's site column, a file or a
    user each.
    """
    found = None if name in _named(None) else _at(name)
    leafs = found is not None and found[1] is LEAF_WORDS
    return (
        name in ("randhie", "shakespeare")
        or leafs
        or (is_table(name) and ("site" in words or Path(name).expanduser().is_dir()))
    )


def own_words(name: str) -> Sequence[str]:
    """The options that a data set has itself, apart from those of its partition."""
    found = _named(None).get(name) or _at(name)
    return found[1] if found else ()


def _at(name: str) -> Reader | None:
    """The reader for what lies at a path, by its ending; a folder holds LEAF's train/ or tables."""
    place = Path(name).expanduser()
    if place.suffix == ".npz":
        return partial(npz, place), ("classes", "test_share", "seed", "task", "class_weights")
    if place.suffix == ".json" or (place / "train").is_dir():
        return partial(leaf, place), LEAF_WORDS
    if place.is_dir() or place.name.lower().endswith(TABLES):
        return partial(table, place), TABLE_WORDS
    return None


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


def _merged(held: Arrays, merged: bool) -> Arrays:
    if not merged:
        return held
    x, y = np.concatenate([held.x, held.x_test]), np.concatenate([held.y, held.y_test])
    mixed = np.random.default_rng(0).permutation(len(y))
    train, test = mixed[: 3 * len(y) // 4], mixed[3 * len(y) // 4 :][: len(y) // 20]
    return Arrays(x[train], y[train], x[test], y[test])


def _source(name: str, held: Arrays, classes: int, scale: Scale) -> DataSource:
    return DataSource(
        Dataset(
            name,
            _normalise(held.x, scale),
            torch.from_numpy(held.y.astype(np.int64)),
            MultiClass(classes),
        ),
        Dataset(
            name,
            _normalise(held.x_test, scale),
            torch.from_numpy(held.y_test.astype(np.int64)),
            MultiClass(classes),
        ),
    )


def _normalise(pixels: np.ndarray, scale: Scale) -> torch.Tensor:
    """Bytes (n, height, width) or (n, channels, height, width) to float32 (n, channels, height,
    width).
    """
    mean, deviation = (torch.tensor(values).reshape(-1, 1, 1) for values in scale)
    images = torch.tensor(pixels, dtype=torch.float32)
    images = images.unsqueeze(1) if images.ndim == 3 else images
    return images.div_(255).sub_(mean).div_(deviation).contiguous()
