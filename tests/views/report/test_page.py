"""A report is one file that needs nothing else, shows of private runs what was released, and takes
what a run says for text.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dpfl.cli.report import report
from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder
from dpfl.views.figures.run_figures import pictures
from dpfl.views.report.page import page, policy
from dpfl.views.run_tables import RunTables

HOSTILE = "<script>alert(1)</script>"
EVERY = {
    "measured-by-rounds",
    "measured-by-epsilon",
    "measured-by-bytes",
    "tau",
    "three-epsilons",
    "accounts",
    "signal",
}


def test_one_page_needs_nothing_else(runs: Path, tmp_path: Path) -> None:
    report([runs / "private-seed0"], out=tmp_path / "r.html", png=tmp_path / "figures")
    text = (tmp_path / "r.html").read_text()
    assert len(text) < 3e6
    links = [
        link for link in re.findall(r'(?:src|href)="([^"]*)"', text) if not link.startswith("#")
    ]
    assert not [link for link in links if not link.startswith("data:image/png;base64,")]
    assert policy() in text
    drawn = set(re.findall(r'<figure id="([^"]*)"', text))
    assert drawn == EVERY
    assert {path.stem for path in (tmp_path / "figures").glob("*.png")} == drawn
    assert {path.stem for path in (tmp_path / "figures").glob("*.svg")} == drawn


def test_what_a_run_says_is_text(runs: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / HOSTILE.replace("/", "∕"))
    folder.path.mkdir()
    for file in ("experiment.toml", "metrics.sqlite"):
        folder.file(file).write_bytes((runs / "plain" / file).read_bytes())
    result = json.loads((runs / "plain" / "result.json").read_text())
    result["stopped_by"], result["lost"] = HOSTILE, [f"round 1, client 0: {HOSTILE}"]
    result["privacy"] |= {
        "unaccounted": [HOSTILE],
        "adversary": HOSTILE,
        "claim": HOSTILE,
        "warnings": [HOSTILE],
    }
    folder.write_json("result.json", result)
    run = RunTables.read(folder.path)
    text = page([run], pictures([run]))
    assert "&lt;script&gt;alert(1)" in text
    assert text.count("<script>") == 1


def test_a_run_under_way_has_a_report(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "experiment.toml").write_bytes(
        (runs / "plain" / "experiment.toml").read_bytes()
    )
    run = RunTables.read(tmp_path / "half")
    assert "No round has ended" in page([run], pictures([run]))


def test_bad_places_are_one_sentence(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(DpflError, match="There is no run in"):
        report([tmp_path / "none"])
    with pytest.raises(DpflError, match=r"ends in \.html"):
        report([runs / "plain"], out=tmp_path / "r.pdf")


def test_a_guarantee_that_hangs_on_a_seed_says_so(runs: Path) -> None:
    run = RunTables.read(runs / "private-seed0")
    assert "Proven under a condition" in page([run], [])
    experiment = {**run.experiment, "resolved": {**run.experiment["resolved"], "entropy": "system"}}
    assert "Proven under a condition" not in page([replace(run, experiment=experiment)], [])


def test_a_page_that_has_the_seed_of_noise_says_so(runs: Path) -> None:
    private, plain = (RunTables.read(runs / name) for name in ("private-seed0", "plain"))
    assert "remove the noise" in page([private], []).partition("<h2>")[0]
    assert "remove the noise" in page([plain, private], []).partition("<h2>")[0]
    assert "remove the noise" not in page([plain], [])
    record = {
        **private.experiment,
        "resolved": {**private.experiment["resolved"], "entropy": "system"},
    }
    assert (
        "remove the noise"
        not in page([replace(private, experiment=record)], []).partition("<h2>")[0]
    )


def test_units_are_of_those_that_are_protected(runs: Path) -> None:
    text = page([RunTables.read(runs / name, name) for name in ("private-seed0", "plain")], [])
    assert "Units differ" not in text
