"""The table of all papers: up to date, whole, and no verdict on what was not run."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from dpfl.reproduce import tables
from dpfl.reproduce.cells import Table
from scripts import results_table

RESULTS, state_of, verdicts = results_table.RESULTS, results_table.state_of, results_table.verdicts
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def known() -> dict[str, Table]:
    return tables()


def test_the_page_has_the_table_as_the_script_makes_it() -> None:
    text = (RESULTS / "README.md").read_text()
    assert results_table.written(text, results_table.section()) == text, "run python scripts/results_table.py"


def test_a_verdict_is_of_what_was_run_and_names_model_and_seeds(known: dict[str, Table]) -> None:
    for name, verdict in verdicts()["table"].items():
        states = [state_of(known[name], place=place) for place in (name, f"{name}.scaled")]
        assert any(state.done or state.earlier for state in states), name
        models = {model for state in states for model in state.models}
        if models and any(char.isdigit() for char in verdict):
            assert "seed" in verdict, name
            assert all(f"`{model}`" in verdict for model in models), name


def test_tests_that_are_named_are_there() -> None:
    assert all((ROOT / part["test"]).exists() for part in verdicts()["part"] if "test" in part)


def folder_with(tmp_path: Path, table: Table, cells: int, scale: str = "") -> Path:
    place = tmp_path / f"{table.name}{'.scaled' * bool(scale)}"
    place.mkdir()
    with (place / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["group", "row", "column", "digest"])
        settings = [scale] if scale else []
        for cell in table.scaled(settings).cells[:cells]:
            writer.writerow([cell.group, cell.row, cell.column, cell.digest(0)])
    (place / "table.md").write_text(f"# T\n\n**Scaled, by `{scale}`: not the paper's size.**\n" if scale else "# T\n")
    return tmp_path


def test_states_are_read_off_the_results(known: dict[str, Table], tmp_path: Path) -> None:
    table = known["clipping-3"]
    assert "not run: some 1,200 hours" in str(state_of(table, tmp_path))
    some = folder_with(tmp_path, table, 2)
    assert str(state_of(table, some)).startswith("2 of 16 cells, one seed, `mlp`; the rest: some ")


def test_whole_and_scaled_tables_say_so(known: dict[str, Table], tmp_path: Path) -> None:
    table = known["clipping-fig5"]
    scaled = folder_with(tmp_path, table, len(table.cells), "budget.rounds=2")
    found = state_of(table, scaled, f"{table.name}.scaled")
    assert found.far == "whole, one seed, `mlp`, scaled by `budget.rounds=2`"
    assert not state_of(table, scaled).done


def test_a_table_at_another_scale_stands_beside_what_it_would_cost_at_its_own(known: dict[str, Table], tmp_path: Path) -> None:
    (tmp_path / "verdicts.toml").write_text("part = []\n[table]\n")
    folder_with(tmp_path, known["clipping-fig5"], 2, "algorithm.tau=2")
    folder_with(tmp_path, known["als-2"], 2)
    folder_with(tmp_path, known["als-2"], 1, "algorithm.rate=0.4")
    lines = {
        line.split("`dpfl reproduce ")[1].split("`")[0]: line for line in results_table.lines(tmp_path) if "reproduce" in line
    }
    said = "[2 of 6 cells, one seed, `mlp`, scaled by `algorithm.tau=2`](clipping-fig5.scaled/table.md); at full size not run: "
    assert said in lines["clipping-fig5"]
    assert (
        "](als-2/table.md); [1 of 21 cells, one seed, `cnn`, scaled by `algorithm.rate=0.4`](als-2.scaled/table.md)"
        in lines["als-2"]
    )
    assert "nothing can be said" in lines["als-3"]
