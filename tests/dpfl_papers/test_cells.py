"""Cells and tables as data."""

from __future__ import annotations

from dataclasses import replace

from dpfl_papers import Outcome
from tests.dpfl_papers.conftest import small_table


def test_settings_scale_every_cell_and_change_what_it_is_kept_as():
    small = small_table(1.0).with_settings(["budget.rounds=1", "data.clients=3"])
    assert small.cells[0].work.content["budget"]["rounds"] == 1
    assert small.cells[0].digest(0) != small_table(1.0).cells[0].digest(0)
    assert small_table(1.0).cells[0].work.content["budget"]["rounds"] == 2


def test_every_word_has_to_name_the_group_the_row_or_a_part_of_the_column():
    table = small_table(1.0, 2.0)
    assert len(table.only([]).cells) == 2
    assert [cell.row for cell in table.only(["mnist", "Rate 2", "EPS"]).cells] == ["rate 2"]
    assert table.only(["rate"]).cells == ()


def test_a_digest_depends_on_the_work_and_the_seed_and_not_on_the_place():
    first, second = small_table(1.0, 2.0).cells
    assert first.place == "MNIST, rate 1, eps 4"
    assert replace(first, group="", row="other", printed=1.0).digest(0) == first.digest(0)
    assert len({first.digest(0), first.digest(1), second.digest(0)}) == 3


def test_an_outcome_is_written_and_read_again():
    outcome = Outcome(1.5, proven="unbounded", series={"round": [1, 2], "loss": [None, 0.5]})
    assert Outcome.from_json(outcome.to_json()) == outcome
