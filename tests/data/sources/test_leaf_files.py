import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfl import models
from dpfl.data import leaf
from dpfl.data.sources.leaf_files import LETTERS
from dpfl.errors import DpflError


def write(path: Path, users: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = [len(held.get("y", ())) for held in users.values()]
    path.write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": users}))


def samples(count: int, label: int) -> dict[str, Any]:
    return {"x": (np.arange(count * 4).reshape(count, 4) / 10).tolist(), "y": [label] * count}


def test_users_are_clients_over_all_files(tmp_path: Path) -> None:
    write(tmp_path / "train" / "0.json", {"ann": samples(3, 0), "bob": samples(2, 1)})
    write(tmp_path / "train" / "1.json", {"eve": samples(4, 2)})
    write(tmp_path / "test" / "0.json", {"ann": samples(1, 0), "eve": samples(1, 2)})
    federation = leaf(tmp_path, shape=[1, 2, 2]).by_owner()
    assert federation.sizes == (3, 2, 4)
    assert federation.shape == (1, 2, 2)
    assert federation.classes == 3
    assert federation.test is not None
    assert federation.test.y.tolist() == [0, 2]
    assert federation.client(1)[1].tolist() == [1, 1]


def test_texts_are_numbered_by_the_letters_of_leaf(tmp_path: Path) -> None:
    """As in its Shakespeare: the letters before, and the one that follows; roles are clients by
    their names.
    """
    write(
        tmp_path / "train" / "0.json",
        {
            "PLAY_ANN": {"x": ["to b", "o b\u00e9"], "y": ["e", "}"]},
            "PLAY_BOB": {"x": ["or n", "r no"], "y": ["o", "t"]},
        },
    )
    write(tmp_path / "test" / "0.json", {"PLAY_ANN": {"x": ["what"], "y": ["!"]}})
    federation = leaf(tmp_path).by_owner()
    assert federation.names == ("PLAY_ANN", "PLAY_BOB")
    assert federation.classes == len(LETTERS) == 80
    assert federation.train.x.tolist()[1] == [LETTERS.index(letter) for letter in "o b "]
    assert federation.train.y.tolist() == [LETTERS.index(letter) for letter in "e}ot"]
    model = models.gru(width=4, vocabulary=80).build(federation.shape, federation.classes, seed=0)
    assert model(federation.train.x).shape == (4, 80)


def test_one_file_without_a_test_set(tmp_path: Path) -> None:
    write(tmp_path / "all.json", {"ann": samples(3, 0), "bob": samples(2, 1)})
    federation = leaf(tmp_path / "all.json", classes=2).by_owner()
    assert federation.test is None
    assert federation.shape == (4,)


@pytest.mark.parametrize(
    ("users", "message"),
    [
        ({}, "has no user_data"),
        ({"ann": {"x": [[1]]}}, "user 'ann': x and y are not"),
        (
            {"ann": {"x": ["to be", "or not"], "y": ["a", "b"]}},
            "user 'ann': samples or labels are texts",
        ),
        ({"ann": {"x": [[1], [2]], "y": [0]}}, "user 'ann': 2 samples and 1 labels"),
        (
            {"ann": {"x": [[1], [2]], "y": [0, 1]}, "bob": {"x": [[1, 2], [2, 3]], "y": [0, 1]}},
            "do not have the first client's shape",
        ),
        ({"ann": {"x": [[1]], "y": [0]}}, "only one"),
    ],
)
def test_what_is_wrong_names_file_and_user(
    tmp_path: Path, users: dict[str, Any], message: str
) -> None:
    write(tmp_path / "all.json", users)
    with pytest.raises(DpflError, match=message):
        leaf(tmp_path / "all.json", classes=2)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DpflError, match="cannot be read"):
        leaf(tmp_path / "none.json")
    with pytest.raises(DpflError, match=r"holds no \.json files"):
        leaf(tmp_path)
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(DpflError, match="not valid JSON"):
        leaf(tmp_path / "x.json")
    for name in ("a.json", "b.json"):
        write(tmp_path / "train" / name, {"ann": samples(3, 0)})
    with pytest.raises(DpflError, match="holds the user 'ann' again"):
        leaf(tmp_path)
    (tmp_path / "train" / "b.json").unlink()
    with pytest.raises(DpflError, match="cannot have the shape"):
        leaf(tmp_path, shape=[3, 3])
