"""Names of lines in a legend."""

from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.views.figures.run_figures import pictures
from dpfl.views.report.page import page
from dpfl.views.run_lines import LONGEST, lines_of, shorten
from dpfl.views.run_tables import read_all


def test_a_long_name_keeps_both_of_its_ends() -> None:
    name = "first" + "-" * 100 + "last"
    short = shorten(name)
    assert len(short) <= LONGEST
    assert short.startswith("first")
    assert short.endswith("last")
    assert shorten("short") == "short"


def test_seeds_are_one_line_with_an_interval(runs: Path) -> None:
    several = read_all([runs / "plain", runs / "private-seed0", runs / "private-seed1"])
    lines = lines_of(several)
    assert [line.label for line in lines] == ["plain", "private (2 seeds)"]
    points = lines[1].points("rounds", "headline")
    assert [point.x for point in points] == [1, 2]
    assert all(point.half is not None for point in points)
    assert lines[0].points("epsilon", "headline") == []
    text = page(several, pictures(several))
    assert "only rows of equal epsilon are a fair comparison" in text
    with pytest.raises(DpflError, match="named twice"):
        read_all([runs / "plain", runs / "plain"])
