import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpfl
from dpfl.errors import DpflError

COLUMNS = {"age": {"low": 0, "high": 100}, "sex": {"levels": ["f", "m"]}}


def write(path: Path, rows: int = 60) -> Path:
    lines = [
        f"{number % 100},{'fm'[number % 2]},{'ab'[number % 3 == 0]},"
        f"p{number // 2},{number % 5 == 0:d}"
        for number in range(rows)
    ]
    path.write_text("\n".join(["age,sex,hospital,patient,died", *lines]))
    return path


def words(**changes: Any) -> dict[str, Any]:
    said = {
        "label": "died",
        "task": "binary",
        "columns": COLUMNS,
        "site": "hospital",
        "sites": ["a", "b"],
        "person": "patient",
    }
    return {word: value for word, value in (said | changes).items() if value is not None}


def test_sites_are_clients_and_rows_keep_their_persons(tmp_path: Path) -> None:
    source = dpfl.data.table(write(tmp_path / "stays.csv"), **words(test={"share": 0.3}))
    federation = source.by_owner()
    assert len(federation.sizes) == 2
    assert federation.classes == 2
    assert federation.how == "site"
    assert federation.test is not None
    assert sum(federation.sizes) + len(federation.test) == 60
    assert federation.persons is not None
    assert len(federation.persons) == len(federation.train)
    assert federation.train.schema is not None
    assert federation.train.schema.features.dense == 3


def test_who_a_row_is_of_is_part_of_the_data(tmp_path: Path) -> None:
    path = write(tmp_path / "stays.csv")
    hashes = {
        dpfl.data.table(path, **words(person=person)).by_owner().sha256
        for person in ("patient", None)
    }
    assert len(hashes) == 2


def test_a_table_of_one_site_is_dealt(tmp_path: Path) -> None:
    source = dpfl.data.load(str(write(tmp_path / "stays.csv")), **words(site=None, sites=None))
    assert source.split(clients=3, how=dpfl.data.IID()).sizes == (20, 20, 20)
    with pytest.raises(DpflError, match="does not name the owner of each sample"):
        source.by_owner()


def test_a_folder_is_one_file_a_client(tmp_path: Path) -> None:
    for name in ("north.csv", "south.csv"):
        write(tmp_path / name, 10)
    source = dpfl.data.load(str(tmp_path), **words(site=None, sites=None))
    assert source.by_owner().sizes == (10, 10)
    assert source.test is None


def test_a_test_set_may_be_another_file(tmp_path: Path) -> None:
    path, other = write(tmp_path / "stays.csv"), write(tmp_path / "test.csv", 8)
    source = dpfl.data.table(path, **words(test={"file": str(other)}))
    assert source.test is not None
    assert (len(source.train), len(source.test)) == (60, 8)


def test_sites_are_declared(tmp_path: Path) -> None:
    with pytest.raises(DpflError, match=r"list the sites in data\.sites, too"):
        dpfl.data.table(write(tmp_path / "stays.csv"), **words(sites=None))


def test_what_is_clamped_is_kept_apart_from_the_notes(tmp_path: Path) -> None:
    columns = {"age": {"low": 0, "high": 50}}
    federation = dpfl.data.table(write(tmp_path / "stays.csv"), **words(columns=columns)).by_owner()
    assert federation.private == ("9 cells of 'age' beyond the declared bounds: clamped",)
    assert federation.notes == ()


def test_an_identifier_that_is_not_declared_is_for_the_statement(tmp_path: Path) -> None:
    (warning,) = (
        dpfl.data.table(write(tmp_path / "stays.csv"), **words(person=None)).by_owner().warnings
    )
    assert warning.startswith("the column 'patient' looks like a person's identifier")


def test_data_of_others_by_its_path(tmp_path: Path) -> None:
    users = {name: {"x": [[0, 1], [1, 0]], "y": [0, 1]} for name in ("ann", "bob")}
    (tmp_path / "all.json").write_text(json.dumps({"user_data": users}))
    assert dpfl.data.load(str(tmp_path / "all.json"), classes=2).by_owner().sizes == (2, 2)
    images, labels = np.zeros((6, 28, 28), dtype=np.uint8), np.array([[0], [1], [2], [0], [1], [2]])
    np.savez(
        tmp_path / "med.npz",
        train_images=images,
        train_labels=labels,
        test_images=images,
        test_labels=labels,
    )
    source = dpfl.data.load(str(tmp_path / "med.npz"))
    assert (source.train.shape, source.train.classes) == ((1, 28, 28), 3)
    several = np.zeros((6, 14), dtype=int)
    np.savez(
        tmp_path / "chest.npz",
        train_images=images,
        train_labels=several,
        test_images=images,
        test_labels=several,
    )
    assert dpfl.data.load(str(tmp_path / "chest.npz")).train.task == dpfl.tasks.MultiLabel(14)
    with pytest.raises(DpflError, match="one label for each sample"):
        dpfl.data.load(str(tmp_path / "chest.npz"), task="classes", classes=2)


def test_randhie_by_its_name() -> None:
    federation = dpfl.data.load("randhie", test={"share": 0.5, "seed": 1}).by_owner()
    assert len(federation.sizes) == 6
    assert federation.test is not None
    assert len(federation.test) == pytest.approx(10_000, rel=0.1)
    with pytest.raises(DpflError, match="'randhie' has no option 'labels'; did you mean 'label'"):
        dpfl.data.load("randhie", labels="visits")
