"""Each unit is kept out of training by its own numbers, whoever else is there."""

from dataclasses import replace

import pytest
import torch

import dpfl
from dpfl.data import IID
from dpfl.data.held_out import split_held_out
from tests.conftest import small_source


def test_what_is_kept_out_is_trained_on_by_nobody_and_a_sample_decides_for_itself() -> None:
    federation = small_source().split(clients=4, seed=0)
    held = split_held_out(federation, 0.2)
    for whole, part, out in zip(
        federation.clients, held.training_rows, held.held_out_rows, strict=True
    ):
        assert torch.equal(torch.cat([part, out]).sort().values, whole.sort().values)
        assert 0.1 < len(out) / len(whole) < 0.3
    fewer = dpfl.data.Federation(
        federation.train, federation.test, tuple(part[1:] for part in federation.clients)
    )
    for less, out in zip(split_held_out(fewer, 0.2).held_out_rows, held.held_out_rows, strict=True):
        assert set(less.tolist()) <= set(out.tolist())
        assert len(out) - len(less) <= 1


@pytest.mark.parametrize("unit", ["sample", "person"])
def test_what_is_kept_out_does_not_change_with_another_unit(unit: str) -> None:
    """One row less moves no other row, also of the same person, where rows are protected; one
    person less no other person.
    """
    whole = small_source().split(clients=1, how=IID(), seed=0)
    persons = torch.arange(len(whole.train)) // 4
    people = replace(whole, persons=persons)
    (kept,) = split_held_out(people, 0.3, unit).held_out_rows
    first = persons == persons[whole.clients[0][0]]
    gone = first if unit == "person" else torch.arange(len(persons)) == whole.clients[0][0]
    fewer = replace(people, clients=(whole.clients[0][~gone[whole.clients[0]]],))
    (less,) = split_held_out(fewer, 0.3, unit).held_out_rows
    assert less.tolist() == kept[~gone[kept]].tolist()
    if unit == "person":
        assert all(
            int((persons[whole.clients[0]] == one).sum()) == int((persons[kept] == one).sum())
            for one in persons[kept][:20]
        )
