"""The pages of the papers: up to date, whole, easy to scan, from stored cells, and no verdict on
what was not run.
"""

from __future__ import annotations

import csv
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpfl_papers import tables
from dpfl_papers.cells import PaperTable
from scripts import results_row, results_table

RESULTS, state_of, verdicts = results_table.RESULTS, results_table.state_of, results_table.verdicts
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def known() -> dict[str, PaperTable]:
    return tables()


README = (RESULTS / "README.md").read_text()
SHORT, LONGEST = 120, 140
"""Characters that a table cell may show, and words that a paragraph may have."""


def cells_of(text: str) -> Iterator[str]:
    """Every table cell as it is shown: a link is its words."""
    for line in text.splitlines():
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip("|")):
                yield re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).strip()


@pytest.mark.parametrize("page", results_table.pages())
def test_a_page_is_as_the_script_makes_it(page: str) -> None:
    text = (RESULTS / page).read_text()
    blocks = results_table.blocks(results_table.pages()[page])
    assert results_table.fill_blocks(text, blocks) == text, "run python scripts/results_table.py"
    assert [name for _, name, _ in results_table.BLOCK.findall(text)] == [
        name for name, block in blocks.items() if block.strip()
    ]


@pytest.mark.parametrize("page", results_table.pages())
def test_no_table_cell_holds_a_paragraph(page: str) -> None:
    for cell in cells_of((RESULTS / page).read_text()):
        assert len(cell) <= SHORT, cell
        assert not re.search(r"[a-z]\. [A-Z]", cell), cell


def test_the_table_has_the_columns_that_a_reader_looks_for_and_every_table_of_the_papers(
    known: dict[str, PaperTable],
) -> None:
    lines = list(results_table.run_lines())
    papers = [line for line in lines if line.startswith("### ")]
    assert papers == [f"### [{paper['name']}]({paper['page']})" for paper in verdicts()["paper"]]
    rows = [line for line in lines if line.startswith("|")]
    assert rows.count(rows[0]) == rows.count(rows[1]) == len(papers)
    heads = rows[0].strip("| ").split(" | ")
    wanted = (
        "what",
        "command",
        "scale",
        "seeds",
        "printed",
        "ours",
        "epsilon claimed",
        "epsilon proven",
        "code, date",
    )
    assert [head for head in heads if head in wanted] == list(wanted)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == len(heads) + 1 for row in rows)
    cells = [row for row in rows if row not in rows[:2]]
    assert {re.findall(r"`dpfl reproduce ([\w-]+)`", row)[0] for row in cells} == set(known)


def test_every_paper_has_one_short_paragraph_and_a_page() -> None:
    papers = verdicts()["paper"]
    assert {paper["name"] for paper in papers} == {
        results_table.paper_of(table)[0] for table in tables().values()
    }
    for paper in papers:
        assert len(paper["paragraph"].split()) <= LONGEST, paper["name"]
        assert README.count(f"**[{paper['name']}]({paper['page']})**") == 1
        assert paper["paragraph"].strip().endswith(".")
        assert "seed" in paper["paragraph"]
        assert "`" in paper["paragraph"]


@pytest.fixture(scope="module")
def stored() -> dict[str, dict[str, Any]]:
    """Cells by digest."""
    with tarfile.open(RESULTS / "cells.tgz") as kept:
        files = [member for member in kept if member.isfile()]
        return {Path(file.name).stem: json.load(kept.extractfile(file)) for file in files}  # type: ignore[arg-type]


def test_what_the_table_shows_is_stored(stored: dict[str, dict[str, Any]]) -> None:
    for result, _ in results_table.results():
        for row in result.rows:
            cell = stored[row["digest"]]
            assert row["value"] == (
                "diverged" if cell["value"] is None else f"{cell['value']:.6g}"
            ), result.what
            assert row["proven"] == ("" if cell["proven"] is None else str(cell["proven"])), (
                result.what
            )
            assert row["code"] == cell.get("code", ""), result.what


def test_every_version_that_a_cell_names_is_known(stored: dict[str, dict[str, Any]]) -> None:
    assert {cell.get("code", "") for cell in stored.values()} <= set(results_table.versions())


def test_the_epsilon_of_steps_that_were_made_is_not_called_proven(
    known: dict[str, PaperTable],
) -> None:
    column = "R_s = R_c / 2, eps 2"
    assert (
        results_row.result_of(known["ali-2"], ("MNIST", "ALI-DPFL", column)).proven == "1.006, used"
    )
    assert (
        results_row.result_of(known["ali-2-wide"], ("MNIST", "ALI-DPFL", column)).proven == "1.358"
    )
    assert results_row.result_of(known["ali-2"], ("MNIST", "tau = 1", column)).proven == "1.006"
    assert (
        results_row.result_of(known["ali-2"], ("MNIST", "ALI-DPFL, published", column)).proven
        == "unbounded"
    )


def test_a_cell_that_is_not_stored_is_not_shown(known: dict[str, PaperTable]) -> None:
    with pytest.raises(ValueError, match="no stored cell"):
        results_row.result_of(
            known["ali-4-wide"], ("MNIST", "tau = 1", known["ali-4-wide"].cells[0].column)
        )
    with pytest.raises(ValueError, match="has no cell"):
        results_row.result_of(known["ali-2"], ("MNIST", "tau = 1,000", "R_s = R_c / 2, eps 2"))


@pytest.mark.parametrize("page", ["hw-dpfl.md", "clipping.md", "wavelets.md"])
def test_the_tables_of_the_claims_are_of_stored_cells(page: str) -> None:
    """Every accuracy with two decimals is a stored value or a printed one."""
    claims = (
        (RESULTS / page)
        .read_text()
        .partition("## What each claim came to")[2]
        .partition("\n## ")[0]
    )
    rows = [row for path in RESULTS.glob("*/results.csv") for row in csv.DictReader(path.open())]
    values = {f"{float(row['value']):.2f}" for row in rows if row["value"] != "diverged"}
    values |= {f"{float(row['printed']):.2f}" for row in rows if row["printed"]}
    shown = {found for cell in cells_of(claims) for found in re.findall(r"\b\d+\.\d\d\b", cell)}
    assert len(shown) > 3
    assert shown <= values | {"0.05"}


def test_a_verdict_is_of_what_was_run_and_names_model_and_seeds(
    known: dict[str, PaperTable],
) -> None:
    for name, verdict in verdicts()["table"].items():
        states = [state_of(known[name], place=place) for place in (name, f"{name}.scaled")]
        assert any(state.done_count or state.earlier for state in states), name
        models = {model for state in states for model in state.models}
        if models and any(char.isdigit() for char in verdict):
            assert "seed" in verdict, name
            assert all(f"`{model}`" in verdict for model in models), name


def test_tests_that_are_named_are_there() -> None:
    assert all((ROOT / part["test"]).exists() for part in verdicts()["part"] if "test" in part)


def folder_with(tmp_path: Path, table: PaperTable, cells: int, scale: str = "") -> Path:
    place = tmp_path / f"{table.name}{'.scaled' * bool(scale)}"
    place.mkdir()
    with (place / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["group", "row", "column", "code", "digest"])
        settings = [scale] if scale else []
        for cell in table.with_settings(settings).cells[:cells]:
            writer.writerow([cell.group, cell.row, cell.column, "", cell.digest(0)])
    (place / "table.md").write_text(
        f"# T\n\n**Scaled, by `{scale}`: not the paper's size.**\n" if scale else "# T\n"
    )
    return tmp_path


def test_states_are_read_off_the_results(known: dict[str, PaperTable], tmp_path: Path) -> None:
    table = known["clipping-3"]
    before = state_of(table, tmp_path)
    assert (before.done_count, before.cells, f"{before.hours:.2g}") == (0, 16, "1.2e+03")
    after = state_of(table, folder_with(tmp_path, table, 2))
    assert (after.done_count, after.cells, after.seeds, after.models) == (2, 16, 1, ["mlp"])
    assert 0 < after.hours < before.hours


def test_whole_and_scaled_tables_say_so(known: dict[str, PaperTable], tmp_path: Path) -> None:
    table = known["clipping-fig5"]
    scaled = folder_with(tmp_path, table, len(table.cells), "budget.rounds=2")
    found = state_of(table, scaled, f"{table.name}.scaled")
    assert (found.done_count, found.seeds, found.models, found.settings) == (
        found.cells,
        1,
        ["mlp"],
        ["budget.rounds=2"],
    )
    assert not state_of(table, scaled).done_count


def test_a_table_of_several_data_sets_says_how_far_each_is() -> None:
    far = list(results_table.progress_lines("ALI-DPFL"))
    second = next(number for number, line in enumerate(far) if "`dpfl reproduce ali-2`" in line)
    assert [line.split(" | ")[2] for line in far[second : second + 4]] == [
        "99 of 190",
        "42 of 62",
        "43 of 62",
        "14 of 66",
    ]
    assert far[second + 1].startswith("| of it MNIST | ")


def test_a_table_at_another_scale_stands_beside_what_it_would_cost_at_its_own(
    known: dict[str, PaperTable], tmp_path: Path
) -> None:
    (tmp_path / "verdicts.toml").write_text("part = []\n[table]\n[shown]\n")
    folder_with(tmp_path, known["clipping-fig5"], 2, "algorithm.tau=2")
    folder_with(tmp_path, known["als-2"], 2)
    folder_with(tmp_path, known["als-2"], 1, "algorithm.rate=0.4")
    far = [
        *results_table.progress_lines("Clipping", tmp_path),
        *results_table.progress_lines("ALS-DPFL", tmp_path),
    ]
    mine = [line for line in far if "`dpfl reproduce clipping-fig5`" in line]
    assert [line.split(" | ")[2:6] for line in mine] == [
        ["0 of 6", "0", "none", "none"],
        ["2 of 6", "1", "`mlp`", "`algorithm.tau=2`"],
    ]
    assert float(mine[0].split(" | ")[6].strip(" |")) > 0
    assert [line.split(" | ")[2] for line in far if "`dpfl reproduce als-2`" in line] == [
        "2 of 21",
        "1 of 21",
    ]
    assert "It was not run." in "\n".join(results_table.verdict_lines("ALS-DPFL", tmp_path))
    shown = [line for line in results_table.run_lines(tmp_path) if "`dpfl reproduce als-3`" in line]
    assert len(shown) == 1
    assert shown[0].count("not run") == 2
