"""Runs side by side: what is one row, what its interval says, and what may be compared."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from scipy import stats

from dpfl.errors import DpflError
from dpfl.views.compare_groups import SeedMean, group_runs, mean_of
from dpfl.views.comparison_view import ComparisonView, notes
from dpfl.views.figures.curves import colours, draw_groups
from dpfl.views.terminal.tables import comparison_table, runs_table


def run(
    seed: int,
    accuracy: float | None = 0.9,
    name: str = "fedavg-dp",
    proven: Any = 2.0,
    **options: Any,
) -> dict[str, Any]:
    settings = {"algorithm": {"name": name} | options, "budget": {"epsilon": 2.0}, "clients": 10}
    return {
        "run": f"runs/{name}-{seed}",
        "algorithm": name,
        "seed": seed,
        "settings": settings,
        "accuracy": accuracy,
        "rounds": None if accuracy is None else 60,
        "stopped_by": "unfinished" if accuracy is None else "rounds",
        "unit": "sample",
        "delta": 1e-5,
        "accountant": "pld",
        "proven": proven,
        "claimed": None,
        "model_sha256": f"{name} {seed} {sorted(options.items())}",
    }


def shown(groups: Any, width: int = 80) -> str:
    console = Console(width=width, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(comparison_table(ComparisonView.of_groups(groups)))
    return captured.get()


def test_runs_are_grouped_by_everything_but_the_seed() -> None:
    runs = [
        run(0, tau=1),
        run(1, tau=1),
        run(0, tau=3),
        run(2, tau=1),
        run(0, name="auto", walk=15.0),
    ]
    groups = group_runs(runs)
    assert [[one["seed"] for one in group.runs] for group in groups] == [[0, 1, 2], [0], [0]]
    assert [group.label for group in groups] == ["fedavg-dp, tau 1", "fedavg-dp, tau 3", "auto"]


def test_the_interval_is_students() -> None:
    values = [0.91, 0.93, 0.88, 0.92]
    low, high = stats.t.interval(0.95, 3, loc=stats.tmean(values), scale=stats.sem(values))
    found = mean_of(values)
    assert found is not None
    assert found.to_dict() == {
        "mean": pytest.approx(0.91),
        "low": pytest.approx(low),
        "high": pytest.approx(high),
        "confidence": 0.95,
        "runs": 4,
    }
    assert mean_of([0.5]) == SeedMean(0.5, None, 1)
    assert mean_of([]) is None


def test_the_same_model_twice_is_one_and_an_unfinished_run_none() -> None:
    (group,) = group_runs([run(0, 0.9), run(0, 0.9), run(1, 0.8), run(2, None, proven=None)])
    assert group.accuracy is not None
    assert group.accuracy.count == 2
    assert group.accuracy.value == pytest.approx(0.85)
    assert "2 of 4" in shown([group])
    assert group.to_dict()["seeds"] == [0, 0, 1, 2]
    assert group.worst["proven"] == 2.0


def test_epsilons_that_are_not_equal_are_said() -> None:
    equal = group_runs([run(0, proven=1.999), run(0, proven=2.0, tau=3)])
    assert notes(equal) == []
    unequal = group_runs([run(0, proven=1.189), run(0, proven=2.0, tau=3)])
    assert notes(unequal) == [
        "Epsilons are not equal (1.1890 to 2.0000): only rows of equal epsilon are a fair "
        "comparison."
    ]
    assert (
        "1.1890 to unbounded"
        in notes(group_runs([run(0, proven=1.189), run(0, proven="unbounded", tau=3)]))[0]
    )
    other = run(0, name="dp-fedavg") | {"unit": "client"}
    assert "units of privacy differ" in notes(group_runs([run(0), other]))[0]


def test_eighty_columns_cut_nothing() -> None:
    long = group_runs(
        [run(seed, 0.9 + seed / 100, tau=tau, rate=0.25) for seed in range(3) for tau in (1, 3)]
    )
    text = shown(long)
    assert "…" not in text
    for words in (
        "91.00 ± 2.48 %",
        "2.0000 per sample",
        "1e-05, pld",
        "tau 3",
        "rounds",
        "Student's t",
    ):
        assert words in text
    assert max(map(len, text.splitlines())) <= 80


def test_more_than_ten_lines_have_colours_of_their_own() -> None:
    for count in (3, 10, 14, 20):
        assert len({tuple(colour) for colour in colours(count)}) == count


def measured(seed: int, metric: str, value: float, **options: Any) -> dict[str, Any]:
    return run(seed, None if metric != "accuracy" else value, **options) | {
        "headline": metric, "figure": value, "rounds": 60, "stopped_by": "rounds",
    }  # fmt: skip


def printed(runs: list[dict[str, Any]]) -> str:
    console = Console(width=120, file=io.StringIO())
    console.print(
        comparison_table(ComparisonView.of_groups(group_runs(runs))),
        runs_table(ComparisonView.of_runs(runs)),
    )
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_figures_stand_under_the_metric_of_their_task():
    told = printed([measured(0, "deviance", 4.5), measured(1, "deviance", 4.7)])
    assert "deviance" in told
    assert "accuracy" not in told
    assert "4.6000 ±" in told
    both = printed([measured(0, "deviance", 4.5), measured(0, "accuracy", 0.91, name="auto")])
    assert "measured" in both
    assert both.count("accuracy 91.00%") == 2
    assert both.count("deviance 4.5000") == 2


def test_what_clients_answered_is_shown_as_noisy():
    told = printed([measured(0, "AUC", 0.7) | {"noisy": True}])
    assert "0.7000 noisy" in told
    assert "contain noise" in told


def test_two_metrics_have_no_axis_together():
    groups = group_runs([measured(0, "deviance", 4.5), measured(0, "AUC", 0.7, name="auto")])
    with pytest.raises(DpflError, match="measured by AUC and deviance"):
        draw_groups(groups)
