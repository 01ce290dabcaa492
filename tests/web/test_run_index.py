"""Runs that are many, long, half written or gone under it; accounts as they are; and plans that
agree with the planner.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dpfl.run.records.folder import METRICS
from dpfl.web import run_index
from dpfl.web.run_index import RunIndex
from tests.web.conftest import HOSTILE

pytestmark = pytest.mark.xdist_group("web")


def test_the_list_has_every_run_and_says_what_cannot_be_read(runs: Path) -> None:
    lines = {line["name"]: line for line in RunIndex(runs).lines()}
    assert {"private-seed0", "private-seed1", "plain", HOSTILE, "half"} <= set(lines)
    assert lines["half"]["state"] == "unreadable"
    assert "half written" in lines["half"]["error"]
    private = lines["private-seed0"]
    assert (private["state"], private["certificate"], private["rounds"]) == ("finished", True, 2)
    guarantee = private["guarantee"]
    assert (guarantee["unit"], guarantee["level"]) == ("one sample", "proven")
    assert guarantee["scope"] == "for one sample, delta 1e-05"
    assert lines["plain"]["guarantee"]["short"] == "no guarantee"
    assert lines["half"]["guarantee"]["short"] == "not yet"
    assert private["proven"] == pytest.approx(private["epsilon"], abs=1e-5)


def test_a_thousand_runs_are_read_once(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1000):
        (tmp_path / f"run-{number}").mkdir()
        for file in ("experiment.toml", "result.json", METRICS):
            (tmp_path / f"run-{number}" / file).hardlink_to(runs / "plain" / file)
    many = RunIndex(tmp_path)
    assert len(many.lines()) == 1000
    monkeypatch.setattr(run_index, "line_of", lambda *_: pytest.fail("read again"))
    shutil.rmtree(tmp_path / "run-7")
    assert len(many.lines()) == 999
