"""Figures of training show every line, and upper bounds rounded up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dpfl.views.figures.run_figures import pictures
from dpfl.views.run_tables import RunTables


def test_no_epsilon_is_rounded_down(runs: Path) -> None:
    """3.99101 is not 3.9910: what is bounded from above must not say less."""
    run = RunTables.read(runs / "private-seed0")
    last = replace(run.rows[-1], epsilon=3.99101)
    told = next(
        one for one in pictures([replace(run, rows=[last])]) if one.name == "measured-by-epsilon"
    ).sentence
    assert "epsilon 3.9911" in told


def test_every_line_is_in_the_picture(runs: Path) -> None:
    """Also one that lies far below the band of the seeds that are drawn first."""
    seeds = [RunTables.read(runs / f"private-seed{seed}", f"private-seed{seed}") for seed in (0, 1)]
    plain = RunTables.read(runs / "plain", "plain")
    low = replace(plain, rows=[replace(row, accuracy=-5.0, headline=-5.0) for row in plain.rows])
    drawn = next(one for one in pictures([*seeds, low]) if one.name == "measured-by-rounds")
    assert drawn.figure.axes[0].get_ylim()[0] <= -500
