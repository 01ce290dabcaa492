"""Readers of the files that public data sets come in. None of them runs code: no pickle."""

from __future__ import annotations

import gzip
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpfl.data.stratify import stratify
from dpfl.errors import DpflError

UNSIGNED_BYTE = 0x08
CIFAR10_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
CIFAR10_TEST = ("test_batch.bin",)
CIFAR10_RECORD = 1 + 3 * 32 * 32


@dataclass(frozen=True)
class Arrays:
    """The contents of a public data set's files.

    Attributes:
        x: The samples to train on.
        y: Their labels.
        x_test: The samples to test on.
        y_test: Their labels.
    """

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class UserArrays:
    """The contents of a user's own file.

    Attributes:
        x: The samples to train on.
        y: Their labels.
        test: Samples and labels to test on, if there are any.
        classes: The number of classes, if the file declares it.
    """

    x: np.ndarray
    y: np.ndarray
    test: tuple[np.ndarray, np.ndarray] | None
    classes: int | None


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Reads an IDX file of bytes.

    Args:
        path: The file, gzipped or not.
        dimensions: The number of dimensions that it must have.

    Returns:
        The array.

    Raises:
        DpflError: The file is damaged or cannot be read.
    """
    content = _read_bytes(path)
    start = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, UNSIGNED_BYTE, dimensions)) or len(content) < start:
        raise _corrupt(
            path, f"its first bytes are not those of an IDX file of {dimensions} dimensions"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected_size = start + int(np.prod(shape, dtype=object))
    if len(content) != expected_size:
        raise _corrupt(path, f"it should have {expected_size} bytes and has {len(content)}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def read_idx_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads images and as many labels.

    Args:
        images: The IDX file of the images.
        labels: The IDX file of the labels.

    Returns:
        Images (n, height, width) and labels (n,).

    Raises:
        DpflError: A file is damaged, or their numbers differ.
    """
    x, y = read_idx(images, 3), read_idx(labels, 1)
    if len(x) != len(y):
        raise _corrupt(labels, f"it has {len(y)} labels for the {len(x)} images of {images.name}")
    return x, y


def read_cifar10(folder: Path) -> Arrays:
    """Reads CIFAR-10 in its binary layout: records of one label byte and 3 x 32 x 32 pixel bytes.

    Args:
        folder: The folder of the six files.

    Returns:
        The arrays.

    Raises:
        DpflError: A file is damaged or cannot be read.
    """
    x, y = _read_records(folder, CIFAR10_TRAIN)
    x_test, y_test = _read_records(folder, CIFAR10_TEST)
    return Arrays(x, y, x_test, y_test)


def read_npz(
    path: Path, test_share: float = 0.0, seed: int = 0, stratify: bool = True
) -> UserArrays:
    """Reads a user's .npz file.

    Args:
        path: A file with x and y, perhaps x_test and y_test, and perhaps classes.
        test_share: The share of the records that becomes public, where the file has no test set.
        seed: Seeds the choice of these records.
        stratify: Whether the share is taken of each class.

    Returns:
        The arrays.

    Raises:
        DpflError: The file cannot be read, or holds something else.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {
                key: file[key]
                for key in ("x", "y", "x_test", "y_test", "classes")
                if key in file.files
            }
    except FileNotFoundError as error:
        raise DpflError(
            f"There is no file {path}: give the path of an .npz file with arrays x and y."
        ) from error
    except (
        OSError,
        ValueError,
        EOFError,
        AttributeError,
        TypeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DpflError(
            f"{path} is no readable .npz file of plain arrays ({error}): save it with numpy.savez."
        ) from error
    classes = _checked_classes(path, arrays.pop("classes", None))
    if not {"x", "y"} <= set(arrays) or len(arrays) == 3:
        raise DpflError(
            f"{path} holds {sorted(arrays)}: give x and y, and both or none of x_test and y_test."
        )
    x, y = arrays["x"], arrays["y"]
    if len(arrays) == 4:
        if test_share:
            raise DpflError(
                f"{path} has a test set of its own, x_test and y_test: leave test_share out."
            )
        return UserArrays(x, y, (arrays["x_test"], arrays["y_test"]), classes)
    if (y.ndim != 1 and stratify) or x.ndim < 2 or x.shape[:1] != y.shape[:1] or len(y) < 2:
        raise DpflError(
            f"{path} has x of shape {x.shape} and y of shape {y.shape}: give (n, ...) and (n,), n "
            "above 1."
        )
    if not test_share:
        return UserArrays(x, y, None, classes)
    return _split_off(x, y, y if stratify else np.zeros(len(y)), test_share, classes, seed)


def _checked_classes(path: Path, classes: np.ndarray | None) -> int | None:
    if classes is None:
        return None
    if classes.shape != () or not np.issubdtype(classes.dtype, np.integer):
        raise DpflError(
            f"{path} holds an array classes that is not one whole number: give the number of "
            "classes."
        )
    return int(classes)


def _split_off(
    x: np.ndarray, y: np.ndarray, strata: np.ndarray, share: float, classes: int | None, seed: int
) -> UserArrays:
    """Splits a stratified share off as a public test set."""
    held_out = np.zeros(len(y), dtype=bool)
    count = min(max(1, round(len(y) * share)), len(y) - 1)
    held_out[stratify(strata, count, np.random.default_rng(seed))] = True
    return UserArrays(x[~held_out], y[~held_out], (x[held_out], y[held_out]), classes)


def _read_records(folder: Path, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    batches = []
    for name in names:
        content = _read_bytes(folder / name)
        if not content or len(content) % CIFAR10_RECORD:
            raise _corrupt(
                folder / name, f"its {len(content)} bytes are no multiple of {CIFAR10_RECORD}"
            )
        batches.append(np.frombuffer(content, dtype=np.uint8).reshape(-1, CIFAR10_RECORD))
        if batches[-1][:, 0].max() > 9:
            raise _corrupt(folder / name, "it has labels above 9")
    records = np.concatenate(batches)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _corrupt(path, str(error)) from error
    except OSError as error:
        raise DpflError(
            f"{path} cannot be read ({error.strerror}): check that it is there and readable."
        ) from error


def _corrupt(path: Path, why: str) -> DpflError:
    return DpflError(f"The file {path} is damaged ({why}): delete it and get it again.")
