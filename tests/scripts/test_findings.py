"""The comparisons on the pages of ALI-DPFL and auto are those of the cells that are stored beside
them.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from dpfl_papers import tables
from dpfl_papers.runner import OutcomeStore
from dpfl_papers.table_report import FinishedCell, collect
from scripts import findings, results_table

RESULTS = results_table.RESULTS
LINES = (RESULTS / "ali-dpfl.md").read_text().splitlines()
AUTO = (RESULTS / "auto.md").read_text().splitlines()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[FinishedCell]]:
    folder, known = tmp_path_factory.mktemp("kept"), tables()
    with tarfile.open(RESULTS / "cells.tgz") as kept:
        kept.extractall(folder, filter="data")
    names = (*findings.TABLES, *findings.WIDE, "ali-levels")
    return {
        name: collect(known[name], findings.SEEDS, OutcomeStore(Path(folder))) for name in names
    }


@pytest.mark.parametrize("name", findings.TABLES)
def test_the_pages_have_auto_and_adaptive_tau_against_the_others(
    made: dict[str, list[FinishedCell]], name: str
) -> None:
    for lines, found in (
        (AUTO, list(findings.against_all(made[name], tables()[name]))),
        (LINES, list(findings.against_fixed(made[name]))),
    ):
        assert found
        assert set(found) <= set(lines)


def test_the_page_has_the_authors_network(made: dict[str, list[FinishedCell]]) -> None:
    short = findings.short_rounds({name: made[name] for name in findings.WIDE})
    for table in (findings.levels(short), findings.differences(short)):
        lines = list(table)
        start = LINES.index(lines[0])
        assert LINES[start : start + len(lines) + 1] == [*lines, ""]


def test_the_page_has_every_reading_of_a_printed_level(made: dict[str, list[FinishedCell]]) -> None:
    said = {
        line.split(" | ")[1].removesuffix(" |")
        for line in LINES
        if line.startswith("| ") and line.count(" | ") == 1
    }
    assert {one.text() for one in made["ali-levels"]} <= {text.split(" (")[0] for text in said}
