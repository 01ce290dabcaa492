"""Cells are kept as they are done, made once, and the same every time."""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dpfl.errors import DpflError
from dpfl_papers import tables
from dpfl_papers.cells import Cell, Outcome, PaperTable, Training
from dpfl_papers.figures import best_taus, draw
from dpfl_papers.runner import OutcomeStore, left_to_do, work_through
from dpfl_papers.table_report import FinishedCell, collect, markdown, write_csv
from tests.conftest import wait_until

SMALL = {
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 4},
    "model": {"name": "mlp", "hidden": 8},
    "budget": {"epsilon": 4.0, "rounds": 2},
    "evaluate": {"every": 1},
}


def training(**algorithm: Any) -> Training:
    return Training(SMALL | {"algorithm": {"name": "fedavg-dp"} | algorithm})


def table(*rates: float, picture: str = "dots") -> PaperTable:
    cells = tuple(
        Cell("MNIST", f"rate {rate:g}", "eps 4", training(rate=rate, tau=1), 50.0, 3.5)
        for rate in rates
    )
    return PaperTable("t", "A table", cells, ("Something was open.",), picture=picture)


def test_the_same_cell_twice_gives_the_same_number_and_is_made_once(tmp_path):
    told: list[str] = []
    for folder in ("a", "b", "b"):
        work_through(
            table(1.0).cells,
            [0],
            OutcomeStore(tmp_path / folder),
            1,
            None,
            lambda cell, seed, outcome: told.append(cell.row),
        )
    outcomes = [
        collect(table(1.0), [0], OutcomeStore(tmp_path / folder))[0].outcomes[0]
        for folder in ("a", "b")
    ]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].sha256
    assert told == ["rate 1", "rate 1"]


def test_cells_side_by_side_come_to_the_same_numbers_as_one_after_another(tmp_path):
    chosen = table(1.0, 2.0)
    for folder, workers in (("one", 1), ("two", 2)):
        work_through(
            chosen.cells, [0], OutcomeStore(tmp_path / folder), workers, None, lambda *_: None
        )
    one, two = (collect(chosen, [0], OutcomeStore(tmp_path / folder)) for folder in ("one", "two"))
    assert [made.outcomes for made in one] == [made.outcomes for made in two]


def test_an_outcome_says_what_was_proven_and_claimed_and_how_training_went():
    outcome = training(tau=2).run(0, None)
    assert 0 < outcome.proven <= 4.0
    assert outcome.claimed > outcome.proven
    assert (outcome.steps, outcome.rounds, outcome.unit) == (4, 2, "sample")
    assert outcome.series["tau"] == [2, 2]
    assert outcome.series["accuracy"][-1] == outcome.value
    assert Outcome.from_json(outcome.to_json()) == outcome


def test_training_that_diverges_has_no_value_and_is_kept(tmp_path):
    content = SMALL | {
        "algorithm": {"name": "fedavg", "rate": 1e30, "tau": 3},
        "budget": {"rounds": 3},
    }
    chosen = PaperTable("t", "A table", (Cell("", "wild", "", Training(content)),), ())
    work_through(chosen.cells, [0], OutcomeStore(tmp_path), 1, None, lambda *_: None)
    made = collect(chosen, [0], OutcomeStore(tmp_path))
    assert made[0].values == []
    assert "diverges" in markdown(chosen, made, ())


def test_a_bad_cell_is_named_in_the_error(tmp_path):
    chosen = PaperTable("t", "A table", (Cell("MNIST", "odd", "eps 4", training(tau=0)),), ())
    with pytest.raises(DpflError, match="MNIST, odd, eps 4: "):
        work_through(chosen.cells, [0], OutcomeStore(tmp_path), 1, None, lambda *_: None)


def test_a_damaged_result_is_named_and_not_overwritten(tmp_path):
    kept = OutcomeStore(tmp_path)
    kept.put("abc", Outcome(1.0))
    (tmp_path / "cells" / "abc.json").write_text("{")
    with pytest.raises(DpflError, match="remove it"):
        kept.get("abc")


def test_settings_scale_every_cell_and_change_what_it_is_kept_as():
    small = table(1.0).scaled(["budget.rounds=1", "data.clients=3"])
    assert small.cells[0].work.content["budget"]["rounds"] == 1
    assert small.cells[0].digest(0) != table(1.0).cells[0].digest(0)
    assert table(1.0).cells[0].work.content["budget"]["rounds"] == 2


def test_the_report_has_our_number_beside_the_papers_and_both_epsilons(tmp_path):
    chosen = table(1.0)
    kept = OutcomeStore(tmp_path)
    for seed, value in enumerate((40.0, 41.0, 42.0)):
        kept.put(
            chosen.cells[0].digest(seed),
            Outcome(value, claimed=3.4, proven=2.71828, steps=7, rounds=2),
        )
    made = collect(chosen, range(3), kept)
    text = markdown(chosen, made, ["budget.rounds=2"])
    # t(0.975, 2) * 1 / sqrt(3)
    assert "41.00 ± 2.48 (3 seeds) [50]" in text
    assert "3.5; 2.719; 7" in text
    assert "`budget.rounds=2`" in text
    assert "Something was open." in text
    write_csv(made, tmp_path / "r.csv")
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [rows[0][name] for name in ("seed", "value", "printed", "proven")] == [
        "0",
        "40",
        "50.0",
        "2.71828",
    ]


def test_the_best_tau_of_each_column_is_counted():
    def made_of(tau: int, column: str, value: float, printed: float) -> FinishedCell:
        work = Training({"budget": {"epsilon": 2.0}, "algorithm": {"tau": tau}})
        return FinishedCell(
            Cell("M", f"tau = {tau}", column, work, printed), (0,), (Outcome(value),)
        )

    made = [
        made_of(tau, column, value, printed)
        for column, values in {
            "a": ((1, 90.0, 80.0), (2, 91.0, 79.0)),
            "b": ((1, 95.0, 70.0), (2, 94.0, 99.0)),
        }.items()
        for tau, value, printed in values
    ]
    assert best_taus(made, lambda one: one.mean) == {2: 1, 1: 1}
    assert best_taus(made, lambda one: one.cell.printed) == {1: 1, 2: 1}


@pytest.mark.parametrize("picture", ["dots", "curves", "steps", "taus", "best"])
def test_every_picture_is_drawn(tmp_path, picture):
    chosen = table(1.0, 2.0, picture=picture)
    series = {"round": [1, 2], "tau": [1, 1], "accuracy": [None, 40.0], "loss": [None, 1.0]}
    made = [FinishedCell(cell, (0,), (Outcome(40.0, series=series),)) for cell in chosen.cells]
    draw(chosen, made, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


@dataclass(frozen=True)
class Slow:
    """Work that says where it is; the fourth does not end before it may."""

    tag: ClassVar[str] = "Slow"
    name: str
    folder: str

    @property
    def content(self) -> dict[str, str]:
        return {"name": self.name}

    def run(self, seed: int, data_dir: Path | None, beginnings: Path | None = None) -> Outcome:
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
    work_through(slow_table(folder).cells, [0], OutcomeStore(folder), 1, None, lambda *_: None)


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
    assert left_to_do(chosen.cells, [0], kept) == (8, 8 - done)
    work_through(chosen.cells, [0], kept, 1, None, lambda *_: None)
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
