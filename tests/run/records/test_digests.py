"""Digests of records and weights."""

import torch

from dpfl.run.records.digests import vector_sha256, without_none


def test_what_is_not_set_is_left_out_of_the_record() -> None:
    assert without_none({"a": None, "b": {"c": None, "d": [1, {"e": None}]}, "f": "text"}) == {
        "b": {"d": [1, {}]},
        "f": "text",
    }


def test_one_bit_of_the_model_changes_its_hash() -> None:
    vector = torch.ones(10)
    changed = vector.clone()
    changed[3] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert vector_sha256(vector) != vector_sha256(changed)
    assert vector_sha256(vector) == vector_sha256(torch.ones(10))
