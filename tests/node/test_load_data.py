"""The data of a node, as its policy says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfl.errors import DpflError
from dpfl.node.load_data import digest, load_node_data
from dpfl.node.policy import read
from tests.node.loopback import SAMPLES, new_node, write_policy


def test_data_is_read_by_its_own_words_and_is_this_node_s_alone(tmp_path: Path) -> None:
    own = load_node_data(read(new_node(tmp_path / "b")))
    assert (len(own.train), own.names, own.test, own.sizes) == (SAMPLES, ("b",), None, (SAMPLES,))
    dealt = load_node_data(read(write_policy(tmp_path / "b", split={"client": 2, "clients": 4})))
    assert len(dealt.train) == SAMPLES // 4
    site = load_node_data(
        read(
            write_policy(
                tmp_path / "b",
                data={"name": "randhie", "classes": None},
                split={"client": 1, "partition": "site"},
            )
        )
    )
    assert site.train.schema is not None
    assert site.persons is not None
    assert len(site.persons) == len(site.train)


def test_persons_are_counted_where_they_are_the_unit(tmp_path: Path) -> None:
    words = {
        "data": {"name": "randhie", "classes": None, "rows_per_person": 2},
        "split": {"client": 1, "partition": "site"},
    }
    own = load_node_data(read(new_node(tmp_path / "b", limits={"unit": "person"}, **words)))
    assert own.count_units("person")[0] < own.sizes[0]
    assert own.rows_per_person == 2
    assert digest(own, "person") != digest(own, "sample")
    with pytest.raises(DpflError, match="to whom each row belongs"):
        load_node_data(read(new_node(tmp_path / "c", limits={"unit": "person"})))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": {"name": None}}, "data.name"),
        ({"data": {"name": "nothing.npz"}}, "nothing.npz"),
        ({"data": {"more": 1}}, "no option 'more'"),
        ({"split": {"client": 9, "clients": 4}}, "split.client"),
        ({"split": {"client": "who", "clients": 4}}, "split.client"),
    ],
)
def test_data_that_is_not_there_is_one_sentence(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(DpflError) as refused:
        load_node_data(read(new_node(tmp_path / "b", **changes)))
    assert said in str(refused.value)
