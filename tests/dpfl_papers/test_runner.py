"""Cells are kept as they are done, made once, and the same every time."""

from __future__ import annotations

import json
import math
import multiprocessing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from dpfl.errors import DpflError
from dpfl_papers import tables
from dpfl_papers.cells import Cell, Outcome, PaperTable
from dpfl_papers.runner import OutcomeStore, count_missing, run_cells, serial_groups
from dpfl_papers.table_report import collect, markdown
from dpfl_papers.training import Training
from tests.conftest import wait_until
from tests.dpfl_papers.conftest import SMALL, small_table, small_training


def test_the_same_cell_twice_gives_the_same_number_and_is_made_once(tmp_path):
    told: list[str] = []
    for folder in ("a", "b", "b"):
        run_cells(
            small_table(1.0).cells,
            [0],
            OutcomeStore(tmp_path / folder),
            1,
            None,
            lambda cell, seed, outcome: told.append(cell.row),
        )
    outcomes = [
        collect(small_table(1.0), [0], OutcomeStore(tmp_path / folder))[0].outcomes[0]
        for folder in ("a", "b")
    ]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].sha256
    assert told == ["rate 1", "rate 1"]


def test_training_that_diverges_has_no_value_and_is_kept(tmp_path):
    content = SMALL | {
        "algorithm": {"name": "fedavg", "rate": 1e30, "tau": 3},
        "budget": {"rounds": 3},
    }
    chosen = PaperTable("t", "A table", (Cell("", "wild", "", Training(content)),), ())
    run_cells(chosen.cells, [0], OutcomeStore(tmp_path), 1, None, lambda *_: None)
    made = collect(chosen, [0], OutcomeStore(tmp_path))
    assert made[0].values == []
    assert "diverges" in markdown(chosen, made, ())


def test_a_bad_cell_is_named_in_the_error(tmp_path):
    chosen = PaperTable("t", "A table", (Cell("MNIST", "odd", "eps 4", small_training(tau=0)),), ())
    with pytest.raises(DpflError, match="MNIST, odd, eps 4: "):
        run_cells(chosen.cells, [0], OutcomeStore(tmp_path), 1, None, lambda *_: None)


def test_a_damaged_result_is_named_and_not_overwritten(tmp_path):
    kept = OutcomeStore(tmp_path)
    kept.put("abc", Outcome(1.0))
    (tmp_path / "cells" / "abc.json").write_text("{")
    with pytest.raises(DpflError, match="remove it"):
        kept.get("abc")


@dataclass(frozen=True)
class Slow:
    """Work that says where it is; the fourth does not end before it may."""

    tag: ClassVar[str] = "Slow"
    name: str
    folder: str

    @property
    def content(self) -> dict[str, str]:
        return {"name": self.name}

    def run(self, seed: int, data_dir: Path | None, prefixes: Path | None = None) -> Outcome:
        if self.name == "3":
            wait_until((Path(self.folder) / "go").exists)
        with (Path(self.folder) / "made").open("a") as file:
            file.write(f"{self.name}\n")
        return Outcome(1.0)


def slow_table(folder: Path) -> PaperTable:
    return PaperTable(
        "t",
        "A table",
        tuple(Cell("", f"row {i}", "", Slow(f"{i}", str(folder))) for i in range(8)),
        (),
    )


def through_slow_table(folder: Path) -> None:
    run_cells(slow_table(folder).cells, [0], OutcomeStore(folder), 1, None, lambda *_: None)


def test_work_that_was_killed_goes_on_where_it_was(tmp_path):
    """With kill -9, in the fourth cell: no finished cell is made again, and none is lost."""
    process = multiprocessing.get_context("fork").Process(
        target=through_slow_table, args=(tmp_path,), daemon=True
    )
    process.start()
    wait_until(
        lambda: len(list((tmp_path / "cells").glob("*.json"))) >= 3 or not process.is_alive()
    )
    process.kill()
    process.join()
    done = len(list((tmp_path / "cells").glob("*.json")))
    assert done == 3
    (tmp_path / "go").touch()
    chosen, kept = slow_table(tmp_path), OutcomeStore(tmp_path)
    assert count_missing(chosen.cells, [0], kept) == (8, 8 - done)
    run_cells(chosen.cells, [0], kept, 1, None, lambda *_: None)
    made = (tmp_path / "made").read_text().split()
    assert set(made) == {str(i) for i in range(8)}
    assert len(made) <= 9  # the one that was under way may have been made twice
    assert not any(math.isnan(one.mean) for one in collect(chosen, [0], kept))


def test_every_table_has_a_name_a_title_and_choices():
    for name, one in tables().items():
        assert one.name == name
        assert one.title
        assert one.choices
        assert one.cells
        json.dumps([cell.work.content for cell in one.cells])


def test_the_fixed_rows_of_the_papers_tables_are_few_lines():
    fixed = [
        cell
        for name in ("ali-2", "ali-3", "ali-4")
        for cell in tables()[name].cells
        if cell.row.startswith("tau = ")
    ]
    missing = {cell.digest(0): (cell, 0) for cell in fixed}
    lines = serial_groups(missing)
    assert len(lines) == 5 * 3  # taus and data sets
    for line in lines:
        rounds = [missing[digest][0].work.content["budget"]["rounds"] for digest in line]
        assert rounds == sorted(rounds)
        assert (
            len({json.dumps(missing[digest][0].work.content["algorithm"]) for digest in line}) == 1
        )
