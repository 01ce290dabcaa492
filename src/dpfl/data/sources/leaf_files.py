"""Data in the JSON format of LEAF (Caldas et al. 2018, arXiv:1812.01097): users, and x and y of
each.

Texts become the numbers of their letters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfl.data.data_source import DataSource
from dpfl.data.federation import Federation
from dpfl.errors import DpflError

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF, in its order. Any other character counts as a blank."""

Samples = dict[str, tuple[np.ndarray, np.ndarray]]


def read_leaf(place: Path, shape: Sequence[int] | None, classes: int | None) -> DataSource:
    """Reads LEAF's files. Each user is the owner of their samples.

    Args:
        place: A folder with train/ and test/, or one .json file.
        shape: The shape of a sample, where the file has it as one row.
        classes: The number of classes.

    Returns:
        The source. The samples in test/, if there are any, are one public test set.

    Raises:
        DpflError: A file is not LEAF's, or a user's samples do not fit.
    """
    train = _read(place / "train" if (place / "train").is_dir() else place, shape)
    test_parts = _read(place / "test", shape) if (place / "test").is_dir() else {}
    test = (
        (
            np.concatenate([x for x, _ in test_parts.values()]),
            np.concatenate([y for _, y in test_parts.values()]),
        )
        if test_parts
        else None
    )
    if classes is None and all(
        y.dtype == np.uint8 for _, y in train.values()
    ):  # letters, which JSON has no other bytes than
        classes = len(LETTERS)
    federation = Federation.from_tensors(list(train.values()), test, place.stem, classes)
    return DataSource(
        federation.train, federation.test, tuple(federation.clients), owners=tuple(train)
    )


def _read(place: Path, shape: Sequence[int] | None) -> Samples:
    """Reads the samples of each user, over all files of a folder."""
    paths = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not paths:
        raise DpflError(
            f"The folder {place} holds no .json files: give LEAF's data folder, with train/ and "
            "test/."
        )
    samples: Samples = {}
    for path in paths:
        for user, content in _users(path).items():
            if user in samples:
                raise DpflError(
                    f"{path} holds the user {user!r} again, who is in another file too: give each "
                    "user once."
                )
            samples[user] = _samples(path, user, content, shape)
    return samples


def _users(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise DpflError(
            f"{path} cannot be read ({error.strerror}): check that it is there and readable."
        ) from None
    except (ValueError, RecursionError) as error:
        raise DpflError(f"{path} is not valid JSON ({error}): correct or replace it.") from None
    users = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(users, dict) or not users:
        raise DpflError(
            f"{path} has no user_data: LEAF's files hold users, num_samples and user_data."
        )
    return users


def _read_numbers(values: Any, kind: type[np.generic]) -> np.ndarray:
    """Converts texts of one length to rows of the numbers of their letters; leaves anything else as
    it is.
    """
    if not all(isinstance(value, str) for value in values) or len(set(map(len, values))) != 1:
        return np.asarray(values)
    return np.array(
        [[_NUMBERS.get(letter, _NUMBERS[" "]) for letter in value] for value in values], dtype=kind
    )


_NUMBERS = {letter: number for number, letter in enumerate(LETTERS)}


def _samples(
    path: Path, user: str, content: Any, shape: Sequence[int] | None
) -> tuple[np.ndarray, np.ndarray]:
    try:
        x, y = _read_numbers(content["x"], np.float32), _read_numbers(content["y"], np.uint8)
        y = y[:, 0] if y.dtype == np.uint8 and y.shape[1:] == (1,) else y
    except (KeyError, TypeError, ValueError):
        raise DpflError(
            f"{path}, user {user!r}: x and y are not one list of samples and one of labels."
        ) from None
    if x.dtype.kind not in "biuf" or y.dtype.kind not in "biuf":
        raise DpflError(
            f"{path}, user {user!r}: samples or labels are texts or of unequal length; encode them "
            "as numbers first."
        )
    if len(x) != len(y) or y.ndim != 1:
        raise DpflError(
            f"{path}, user {user!r}: {len(x)} samples and {y.size} labels; give one per sample."
        )
    if shape is None:
        return (x if x.ndim > 1 else x[:, None]), y
    try:
        return x.reshape(len(x), *shape), y
    except (ValueError, TypeError):
        raise DpflError(
            f"{path}, user {user!r}: samples of {x.shape[1:]} numbers cannot have the shape "
            f"{tuple(shape)}."
        ) from None
