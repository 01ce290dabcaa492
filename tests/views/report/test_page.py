"""A report is one file that needs nothing else, shows of private runs what was released, and takes
what a run says for text.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import dpfl
from dpfl.cli.report import report
from dpfl.config.experiment import load, parse
from dpfl.errors import DpflError
from dpfl.run.folder import METRICS, RunFolder
from dpfl.run.metrics import COLUMNS, RoundRow, read_thinned
from dpfl.views.curve_sentences import metric_sentence
from dpfl.views.figures.run_figures import pictures
from dpfl.views.report.page import page, policy
from dpfl.views.rerun_command import command
from dpfl.views.run_lines import RunLines, lines_of
from dpfl.views.run_tables import RunTables, read_all
from tests.conftest import MODEL, small_crowd, small_federation

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


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a private system, one without privacy, and one with public clients; two rounds
    each.
    """
    root = tmp_path_factory.mktemp("runs")
    budget, private = (
        dpfl.Budget(rounds=2),
        dpfl.algorithms.fedavg_dp(noise_multiplier=2.0, sampling_rate=0.5),
    )
    for seed in (0, 1):
        limited = dpfl.Budget(rounds=2, epsilon=20.0)
        dpfl.train(
            MODEL,
            small_federation(),
            private,
            limited,
            execution=dpfl.Execution(out=root / f"private-seed{seed}", seed=seed),
        )
    dpfl.train(
        MODEL, small_federation(), "fedavg", budget, execution=dpfl.Execution(out=root / "plain")
    )
    median = dpfl.algorithms.dp_fedavg(clipping="public-median", noise_multiplier=1.0, cohort=10)
    dpfl.train(MODEL, small_crowd(), median, budget, execution=dpfl.Execution(out=root / "public"))
    return root


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


def test_of_private_runs_no_single_update_is_kept(runs: Path) -> None:
    assert RunTables.read(runs / "private-seed0").single == []
    plain = RunTables.read(runs / "plain").single
    assert sorted({(update.round, update.whose) for update in plain}) == [
        (round, f"client-{client:05}") for round in (1, 2) for client in range(4)
    ]
    public = RunTables.read(runs / "public").single
    assert {update.whose for update in public} == {"public 0", "public 1", "public 2"}
    assert "updates" in {picture.name for picture in pictures([RunTables.read(runs / "plain")])}


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


@pytest.mark.parametrize(
    "settings",
    [
        ["budget.rounds=3"],
        ["algorithm.name=dp-fedavg", "budget.rounds=3", "seed=7", "data.clients=4"],
        ["algorithm.name=ali-dpfl", 'data.names=["a", "its $(b)"]', "data.clients=2"],
    ],
)
def test_a_command_repeats_the_experiment(settings: list[str]) -> None:
    asked = load(None, settings)
    text = command({"experiment": asked.model_dump(exclude_none=True)})
    if "<<" in text:
        again = parse(tomllib.loads(text.partition("\n")[2].removesuffix("END")))
    else:
        again = load(None, [word for word in shlex.split(text)[2:] if word != "--set"])
    assert again == asked


def test_of_a_long_run_means_are_shown_and_the_last_round(tmp_path: Path) -> None:
    metrics = RunFolder(tmp_path).metrics()
    usual = dict.fromkeys(COLUMNS, 1.0) | {"loss": None}
    values = [
        tuple((usual | {"round": round, "bytes": 8 * round}).values()) for round in range(1, 5001)
    ]
    metrics._connection.execute("BEGIN")
    metrics._connection.executemany(
        f"INSERT INTO rounds VALUES ({', '.join('?' * len(COLUMNS))})", values
    )
    metrics._connection.execute("COMMIT")
    metrics.close()
    rows = read_thinned(tmp_path / METRICS, 200)
    assert len(rows) <= 200
    assert rows[-1] == RoundRow(*values[-1])
    assert [row.round for row in rows] == sorted({row.round for row in rows})
    assert all(
        row.bytes == 8 * row.round and row.loss is None and row.accuracy == 1 for row in rows
    )
    assert [row.round for row in read_thinned(tmp_path / METRICS, 200, after=4990)] == list(
        range(4991, 5001)
    )


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


def test_no_epsilon_is_rounded_down(runs: Path) -> None:
    """3.99101 is not 3.9910: what is bounded from above must not say less."""
    run = RunTables.read(runs / "private-seed0")
    last = replace(run.rows[-1], epsilon=3.99101)
    told = next(
        one for one in pictures([replace(run, rows=[last])]) if one.name == "measured-by-epsilon"
    ).sentence
    assert "epsilon 3.9911" in told


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


@pytest.mark.parametrize("name", ["$\\frac{$", "_hidden", "x" * 200])
def test_any_name_can_be_drawn(runs: Path, name: str) -> None:
    """No name is a formula, and none is left out of a legend."""
    two = [RunTables.read(runs / "plain", "other"), RunTables.read(runs / "private-seed0", name)]
    stated = {**two[1].statement, "per_client": {name: 1.0}}
    for picture in [*pictures(two), *pictures([replace(two[1], statement=stated)])]:
        drawn = picture.svg()
        if picture.name == "measured-by-rounds" and len(name) < 20 and "legend" in drawn:
            assert name in drawn


def test_an_audit_without_a_figure_is_drawn(runs: Path) -> None:
    run = replace(RunTables.read(runs / "private-seed0"), audit={"measured": float("nan")})
    assert "not audited" in page([run], pictures([run]))


def test_units_are_of_those_that_are_protected(runs: Path) -> None:
    text = page([RunTables.read(runs / name, name) for name in ("private-seed0", "plain")], [])
    assert "Units differ" not in text


def test_every_line_is_in_the_picture(runs: Path) -> None:
    """Also one that lies far below the band of the seeds that are drawn first."""
    seeds = [RunTables.read(runs / f"private-seed{seed}", f"private-seed{seed}") for seed in (0, 1)]
    plain = RunTables.read(runs / "plain", "plain")
    low = replace(plain, rows=[replace(row, accuracy=-5.0, headline=-5.0) for row in plain.rows])
    drawn = next(one for one in pictures([*seeds, low]) if one.name == "measured-by-rounds")
    assert drawn.figure.axes[0].get_ylim()[0] <= -500
