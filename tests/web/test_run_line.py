"""One run as a line of the list, read quickly and the same as from the whole record."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl.privacy.statement_view import GuaranteeView
from dpfl.run.records.folder import RunFolder
from dpfl.views.run_summary import summary
from dpfl.web.run_line import heads, line_of, unreadable_line

pytestmark = pytest.mark.xdist_group("web")


def test_the_tables_of_a_list_are_those_of_the_whole_record(runs: Path) -> None:
    folder = RunFolder(runs / "private-seed0")
    whole, some = folder.experiment(), heads(folder.file("experiment.toml"))
    assert some["run"] == whole["run"]
    assert some["resolved"]["budget"] == whole["resolved"]["budget"]
    line, row = line_of(folder, "x"), summary(folder)
    assert line["clients"] == row["clients"] == 4
    assert (line["system"], line["measured"]) == (row["algorithm"], row["accuracy"])
    assert line["guarantee"] == GuaranteeView.of(row).to_dict()


def test_every_line_has_the_same_entries_so_that_pages_need_not_ask(runs: Path) -> None:
    line, unreadable = line_of(RunFolder(runs / "plain"), "x"), unreadable_line("y", "half written")
    assert line.keys() == unreadable.keys()
    assert line["epsilon_so_far"].keys() == unreadable["epsilon_so_far"].keys()
    assert unreadable["epsilon_so_far"]["figure"] == "-"
