"""Whose rows are whose: persons at one client."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpfl.data.units import ROWS, UnitGroups
from dpfl.errors import DpflError

PERSONS = torch.tensor([7, 3, 7, 9, 3, 7, 1, 9])


def test_the_rows_of_a_person_are_together_in_the_order_of_the_client() -> None:
    units = UnitGroups.of(torch.tensor([5, 1, 0, 4, 3]), PERSONS)
    assert len(units) == 3
    rows, group = units.take(torch.tensor([0, 1, 2]))
    assert rows.tolist() == [1, 4, 5, 0, 3]
    assert group.tolist() == [0, 0, 1, 1, 2]


def test_what_is_drawn_is_persons() -> None:
    units = UnitGroups.of(torch.arange(8), PERSONS)
    rows, group = units.take(torch.tensor([1, 3]))
    assert rows.tolist() == [1, 4, 3, 7]
    assert group.tolist() == [0, 0, 1, 1]
    assert [len(part) for part in units.take(torch.zeros(0, dtype=torch.int64))] == [0, 0]


def test_a_person_counts_with_the_first_rows_only() -> None:
    units = UnitGroups.of(torch.arange(8), PERSONS, most=2)
    assert units.sizes.tolist() == [1, 2, 2, 2]
    assert units.take(torch.arange(4))[0].tolist() == [6, 1, 4, 0, 2, 3, 7]
    with pytest.raises(DpflError, match="rows_per_person"):
        UnitGroups.of(torch.arange(8), PERSONS, most=0)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=30),
    st.integers(0, 5),
    st.sampled_from([None, 1, 3]),
)
def test_a_person_who_leaves_changes_nothing_of_the_others(
    persons: list[int], gone: int, most: int | None
) -> None:
    numbers = torch.tensor(persons)

    def held(rows: torch.Tensor) -> list[list[int]]:
        units = UnitGroups.of(rows, numbers, most)
        return [units.take(torch.tensor([unit]))[0].tolist() for unit in range(len(units))]

    everyone, others = (
        held(torch.arange(len(numbers))),
        held(torch.arange(len(numbers))[numbers != gone]),
    )
    assert others == [rows for rows in everyone if persons[rows[0]] != gone]


@given(st.lists(st.sampled_from([1, 3, 50, ROWS, ROWS + 1, 700]), min_size=1, max_size=5))
def test_means_are_over_the_rows_of_each_person(sizes: list[int]) -> None:
    numbers = torch.repeat_interleave(torch.tensor(sizes))[
        torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(0))
    ]
    values = torch.randn(sum(sizes), 2, 3, generator=torch.Generator().manual_seed(1))
    found = torch.cat(
        list(
            UnitGroups.of(torch.arange(sum(sizes)), numbers).means(
                lambda rows: values[rows].flatten(1)
            )
        )
    )
    expected = torch.stack(
        [values[numbers == person].flatten(1).mean(0) for person in range(len(sizes))]
    )
    assert torch.allclose(found, expected.double(), atol=1e-6)
