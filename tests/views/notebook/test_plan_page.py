"""A plan in a notebook: its recommendation, and its noise as curves."""

from __future__ import annotations

import dpfl
from tests.views.notebook.html_reader import words


def test_a_plan_shows_what_it_recommends() -> None:
    found = dpfl.plan(
        epsilon=4, rounds=20, sizes=[800] * 10, rates=[0.1, 0.5], taus=[1, 2], parameters=100
    )
    shown = words(found)
    assert f"* {found.recommendation.per_step:.1f}" in shown
    assert "Recommended for epsilon 4 (for one sample, delta 1e-05) over 20 rounds" in shown
    assert len(found.plot().axes) == 3
