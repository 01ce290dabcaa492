"""Finds every source by its name or its path: published data sets, and the user's own arrays,
tensors, files and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dpfl.bad_values import is_number, refuse_unknown_options, require_whole, suggest
from dpfl.data.data_source import DataSource
from dpfl.data.dataset import Array, make_dataset
from dpfl.data.declared_task import names_classes, task_of
from dpfl.data.published_images import (
    EMNIST_CLASSES,
    cifar10,
    emnist,
    fashion_mnist,
    mnist,
    sample,
)
from dpfl.data.sources.files import (
    read_npz,
)
from dpfl.data.sources.medmnist_files import is_medmnist, read_medmnist
from dpfl.data.special_names import LEAF_WORDS, TABLE_WORDS, TABLES
from dpfl.errors import DpflError
from dpfl.tasks import Task


def npz(
    path: str | Path,
    classes: int | None = None,
    test_share: float = 0.0,
    seed: int = 0,
    task: Task | str | None = None,
    class_weights: Sequence[float] = (),
) -> DataSource:
    """Reads the user's own .npz file.

    Args:
        path: A file with x and y, and x_test and y_test if there is a public test set.
        classes: The number of classes.
        test_share: The share of the records that is declared public to test on, stratified by
            class. By default, nothing is measured.
        seed: Seeds the choice of these records.
        task: As for `tensors`.
        class_weights: As for `tensors`.

    Returns:
        The source.

    Raises:
        DpflError: The file cannot be read, or holds something else.
    """
    if not is_number(test_share) or not 0 <= test_share < 1:
        raise DpflError(
            f"test_share is {test_share!r}: give the part of the records to make public, from 0 to "
            "below 1."
        )
    require_whole(seed, "seed", least=0)
    if is_medmnist(Path(path).expanduser()):
        return medmnist(path, classes, task, class_weights)
    arrays = read_npz(Path(path).expanduser(), test_share, seed, stratify=names_classes(task))
    x_test, y_test = arrays.test or (None, None)
    classes = arrays.classes if classes is None else classes
    return tensors(
        arrays.x, arrays.y, x_test, y_test, Path(path).stem, classes, task, class_weights
    )


def table(path: str | Path, **words: Any) -> DataSource:
    """Reads the user's own table: one CSV or Parquet file, or a folder with one file for each site.

    Example:
        dpfl.data.table("stays.csv", label="died", task="binary", person="patient",
            site="hospital", sites=["a", "b"], test={"share": 0.2},
            columns={"age": {"low": 0, "high": 110}, "sex": {"levels": ["f", "m"], "other": True}})

    Args:
        path: The file or folder.
        words: The words of [data] in an experiment.

    Returns:
        The source.

    Raises:
        DpflError: The declaration is incomplete, or the table cannot be read.
    """
    from dpfl.data.tables.tabular import own_table

    return own_table(Path(path).expanduser(), words)


def randhie(label: str = "any-visit", test: Mapping[str, Any] | None = None) -> DataSource:
    """Loads the RAND Health Insurance Experiment: 20,190 person-years of 5,912 people at six sites.

    Args:
        label: What is learned from 20 columns: "any-visit" to a doctor in a year, or the number of
            "visits".
        test: The words of data.test. By default, a fifth of the persons is public.

    Returns:
        The source.
    """
    from dpfl.data.tables.tabular import study

    return study(label, test)


def shakespeare(length: int = 64, test: Mapping[str, Any] | None = None) -> DataSource:
    """Loads Shakespeare's 31 largest roles. A role is a client, and the next character is
    predicted.

    Args:
        length: The number of characters of a sample.
        test: The share of the samples that is public to test on, 0.1 by default, and a seed.

    Returns:
        The source, of 0.86 million characters.
    """
    from dpfl.data.sources.shakespeare_text import read

    return read(length, test)


def leaf(
    path: str | Path, shape: Sequence[int] | None = None, classes: int | None = None
) -> DataSource:
    """Reads the user's own data in LEAF's JSON. Each user is a client.

    Args:
        path: A folder with train/ and test/, each of .json files, or one .json file. All users'
            test samples are one test set, which is thereby public.
        shape: The shape of a sample, where the file has it as one row.
        classes: The number of classes.

    Returns:
        The source.

    Raises:
        DpflError: A file is not LEAF's.
    """
    from dpfl.data.sources.leaf_files import read_leaf

    return read_leaf(Path(path).expanduser(), shape, classes)


def medmnist(
    path: str | Path,
    classes: int | None = None,
    task: Task | str | None = None,
    class_weights: Sequence[float] = (),
) -> DataSource:
    """Reads a file of MedMNIST. Its images for validation are left out.

    Args:
        path: The file.
        classes: The number of classes; by default that of the test set.
        task: As for `tensors`. Several labels for each image are the task "labels".
        class_weights: As for `tensors`.

    Returns:
        The source.

    Raises:
        DpflError: The file is not MedMNIST's.
    """
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
    """Takes the user's own tensors or arrays, of any numeric type.

    Args:
        x: The samples to train on.
        y: Their labels.
        x_test: The samples to test on.
        y_test: Their labels.
        name: A name for the data.
        classes: The number of classes, labels, levels or tokens. By default, the number of classes
            of the test set.
        task: A part of `dpfl.tasks` or its name: "classes" (the default), "binary", "labels",
            "ordinal", "number", "counts" or "tokens".
        class_weights: The weight of each class in the loss.

    Returns:
        The source.

    Raises:
        DpflError: The arrays do not fit each other or the task.
    """
    task = task_of(name, task, classes, class_weights, y_test)
    if (x_test is None) != (y_test is None):
        raise DpflError("A test set has samples and labels: give both x_test and y_test, or none.")
    test = None if x_test is None or y_test is None else make_dataset(name, x_test, y_test, task)
    return DataSource(make_dataset(name, x, y, task), test)


def load(name: str, data_dir: str | Path | None = None, **options: Any) -> DataSource:
    """Finds a source by its name or path.

    Args:
        name: The name of a data set, or the path of a table or a folder of tables, of an .npz file,
            or of LEAF's JSON.
        data_dir: The folder of all data sets.
        options: The options of the data set, such as the words of a table.

    Returns:
        The source.

    Raises:
        DpflError: There is no such data set, or it has no such option.
    """
    readers = _named_readers(data_dir)
    reader = readers.get(name) or _at(name)
    if reader is None:
        raise DpflError(
            f"There is no data set {name!r}; {suggest(name, readers)} Or give the path of an .npz, "
            ".csv or .parquet file."
        )
    read, option_names = reader
    refuse_unknown_options(f"The data set {name!r}", options, option_names)
    return read(**options)


Reader = tuple[Callable[..., DataSource], Sequence[str]]
"""A function that reads a source, and the options that it has."""


def _named_readers(data_dir: str | Path | None) -> dict[str, Reader]:
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
    """Says whether a name is the path of a table, or of a folder of tables.

    Args:
        name: The name of the data.

    Returns:
        Whether it is.
    """
    reader = None if name in _named_readers(None) else _at(name)
    return reader is not None and reader[1] is TABLE_WORDS


def is_owned(name: str, words: Mapping[str, Any]) -> bool:
    """Says whether samples have owners: the sites of a study, the values of a site column, or one
    file or user each.

    Args:
        name: The name of the data.
        words: The words of [data].

    Returns:
        Whether they have.
    """
    reader = None if name in _named_readers(None) else _at(name)
    leafs = reader is not None and reader[1] is LEAF_WORDS
    return (
        name in ("randhie", "shakespeare")
        or leafs
        or (is_table(name) and ("site" in words or Path(name).expanduser().is_dir()))
    )


def own_words(name: str) -> Sequence[str]:
    """Lists the options of a data set itself, apart from those of its partition.

    Args:
        name: The name of the data.

    Returns:
        The options.
    """
    reader = _named_readers(None).get(name) or _at(name)
    return reader[1] if reader else ()


def _at(name: str) -> Reader | None:
    """Finds the reader for what lies at a path, by its ending. A folder holds LEAF's train/ or
    tables.
    """
    place = Path(name).expanduser()
    if place.suffix == ".npz":
        return partial(npz, place), ("classes", "test_share", "seed", "task", "class_weights")
    if place.suffix == ".json" or (place / "train").is_dir():
        return partial(leaf, place), LEAF_WORDS
    if place.is_dir() or place.name.lower().endswith(TABLES):
        return partial(table, place), TABLE_WORDS
    return None
