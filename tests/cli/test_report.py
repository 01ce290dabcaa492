"""`dpfl report` writes its page and its figures where it was asked to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfl.cli.report import report
from dpfl.errors import DpflError
from dpfl.views.figures.canvas import FigureFile, canvas


@pytest.fixture(autouse=True)
def _one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are read and drawn elsewhere (`tests/views`)."""
    figure: Any = FigureFile("tau", "Local steps", "A line.", canvas()[0])
    source = "dpfl.cli.report"
    monkeypatch.setattr(f"{source}.read_all", lambda folders: list(folders))
    monkeypatch.setattr(f"{source}.pictures", lambda runs: [figure])
    monkeypatch.setattr(f"{source}.page", lambda runs, figures: f"{len(runs)} {len(figures)}")


def test_one_run_has_its_page_in_its_folder_and_several_in_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    report([tmp_path / "a"], png=tmp_path / "figures")
    report([tmp_path / "a", tmp_path / "b"])
    assert (tmp_path / "a" / "report.html").read_text() == "1 1"
    assert (tmp_path / "report.html").read_text() == "2 1"
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"tau.png", "tau.svg"}
    assert f"1 figure in {tmp_path / 'a' / 'report.html'}" in capsys.readouterr().out


def test_a_page_has_the_ending_of_a_page(tmp_path: Path) -> None:
    with pytest.raises(DpflError, match=r"--out writes a file that ends in \.html"):
        report([tmp_path], out=tmp_path / "report.pdf")
