"""All figures of a run: each has axes, units and a sentence, whatever the run is called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpfl.views.figures.run_figures import pictures
from dpfl.views.run_tables import RunTables


def test_every_figure_has_axes_units_and_a_sentence(runs: Path) -> None:
    for picture in pictures([RunTables.read(runs / "private-seed0")]) + pictures(
        [RunTables.read(runs / "plain")]
    ):
        assert picture.sentence.endswith(".")
        assert len(picture.sentence.split()) > 8
        axes = [axis for axis in picture.figure.axes if axis.get_label() != "<colorbar>"]
        assert axes[-1].get_xlabel()
        assert all(axis.get_ylabel() or axis.get_yticklabels() for axis in axes)
        assert "epsilon" not in axes[-1].get_xlabel() or "delta 1e-05" in axes[-1].get_xlabel()


@pytest.mark.parametrize("name", ["$\\frac{$", "_hidden", "x" * 200])
def test_any_name_can_be_drawn(runs: Path, name: str) -> None:
    """No name is a formula, and none is left out of a legend."""
    two = [RunTables.read(runs / "plain", "other"), RunTables.read(runs / "private-seed0", name)]
    stated = {**two[1].statement, "per_client": {name: 1.0}}
    for picture in [*pictures(two), *pictures([replace(two[1], statement=stated)])]:
        drawn = picture.svg()
        if picture.name == "measured-by-rounds" and len(name) < 20 and "legend" in drawn:
            assert name in drawn
