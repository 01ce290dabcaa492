"""A comparison in a notebook: one row per system, with the interval over its seeds."""

from __future__ import annotations

import pytest
from scipy import stats

import dpfl
from tests.views.notebook.html_reader import words


def test_runs_of_one_system_are_compared_over_their_seeds(results: list[dpfl.Result]) -> None:
    compared = dpfl.compare(*results)
    assert [len(group.runs) for group in compared.groups] == [2, 1]
    first, second = compared.to_arrow().to_pylist()
    accuracies = [result.accuracy for result in results[:2]]
    assert first["mean"] == pytest.approx(sum(accuracies) / 2)
    half = (
        stats.t.ppf(0.975, df=1) * abs(accuracies[0] - accuracies[1]) / 2
    )  # s / sqrt(2) of two values is half their distance
    assert (first["high"] - first["low"]) / 2 == pytest.approx(half, abs=1e-9)
    assert (first["high"] + first["low"]) / 2 == pytest.approx(first["mean"])
    assert second["low"] is None
    assert first["proven"] == pytest.approx(
        max(result.privacy.proven for result in results[:2]), abs=1e-5
    )
    shown = words(compared)
    assert "interval of the mean over seeds" in shown
    assert "±" in shown
    assert len(compared.plot().axes) == 2
    assert compared.to_dict()[0]["seeds"] == [0, 1]
