"""Lists of indices from Python and from files."""

import json

import numpy as np
import pytest

from dpfl.data import (
    ExplicitPartition,
)
from dpfl.data.partition_kinds import UNITS
from dpfl.errors import DpflError


def run(how, labels, clients, seed=0):
    return how(labels, clients, np.random.default_rng(seed))


def test_mapping_from_lists_and_files(tmp_path):
    lists = [[3, 1], [0, 2, 4]]
    (tmp_path / "lists.json").write_text(json.dumps(lists))
    (tmp_path / "named.json").write_text(json.dumps({"north": lists[0], "south": lists[1]}))
    np.savez(tmp_path / "lists.npz", *[np.array(part) for part in lists])
    for given_lists in (
        lists,
        tmp_path / "lists.json",
        str(tmp_path / "named.json"),
        tmp_path / "lists.npz",
    ):
        parts, notes = run(ExplicitPartition(given_lists), np.zeros(6), 2)
        assert [part.tolist() for part in parts] == lists
        assert notes == (f"1 of 6 {UNITS} belong to no client",)


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ([[0, 1]], "has 1 lists and 2 clients"),
        ([[0, 1], [1, 2]], "occur twice"),
        ([[0, 1], [2, 6]], "List 1 of the mapping leaves the range 0 to 5"),
        ([[0, 1], [2.5]], "List 1 of the mapping is not one row of whole numbers"),
        ([[0, 1], [[2], [3, 4]]], "List 1 of the mapping is not one row"),
        ("missing.json", "cannot be read"),
    ],
)
def test_a_wrong_mapping_is_refused(lists, said):
    with pytest.raises(DpflError, match=said):
        run(ExplicitPartition(lists), np.zeros(6), 2)


def test_a_mapping_file_without_lists_is_refused(tmp_path):
    (tmp_path / "number.json").write_text("7")
    with pytest.raises(DpflError, match="holds no lists"):
        run(ExplicitPartition(tmp_path / "number.json"), np.zeros(6), 2)


def test_a_damaged_mapping_archive_is_refused(tmp_path):
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(DpflError, match="cannot be read"):
        run(ExplicitPartition(tmp_path / "one.npz"), np.zeros(6), 2)
