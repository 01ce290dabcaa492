"""Captions of curves say which line is better, whichever way the metric goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl.views.curve_sentences import metric_sentence
from dpfl.views.run_lines import RunLines
from dpfl.views.run_tables import RunTables


@pytest.mark.parametrize(
    ("name", "way"), [("AUC", "rising"), ("RMSE", "falling"), ("perplexity", "falling")]
)
def test_better_is_where_the_metric_says(runs: Path, name: str, way: str) -> None:
    """Fault: of two runs measured by RMSE the worse was said to be the better trade."""
    less, both = (
        way == "falling",
        [
            RunLines(f"seed{seed}", (RunTables.read(runs / f"private-seed{seed}"),))
            for seed in (0, 1)
        ],
    )
    ends = {line.label: line.points("rounds", "headline")[-1].y for line in both}
    best = (min if less else max)(ends, key=lambda label: ends[label])
    assert f"still {way} there" in metric_sentence(both[:1], "rounds", name)
    assert f"{best} ends {'lowest' if less else 'highest'}" in metric_sentence(both, "rounds", name)
    assert f"the {'lower' if less else 'higher'} line is the better trade" in metric_sentence(
        both, "epsilon", name
    )
