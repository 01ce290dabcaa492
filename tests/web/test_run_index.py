"""Runs that are many, long, half written or gone under it; accounts as they are; and plans that
agree with the planner.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.planning.noise_choices import PlanningQuestion
from dpfl.planning.tradeoff import sketch, tradeoff
from dpfl.privacy import Poisson, accountant
from dpfl.run.folder import METRICS, RunFolder
from dpfl.run.metrics import COLUMNS
from dpfl.web import planner, run_index
from dpfl.web.event_stream import EventStream
from dpfl.web.ledger_views import ledger_view, ledgers_of, verdict
from dpfl.web.run_index import RunIndex
from dpfl.web.run_line import heads, line_of
from dpfl.web.run_views import comparison_page, news, run_page
from tests.web.conftest import HOSTILE

pytestmark = pytest.mark.xdist_group("web")


def test_the_list_has_every_run_and_says_what_cannot_be_read(runs: Path) -> None:
    lines = {line["name"]: line for line in RunIndex(runs).lines()}
    assert {"private-seed0", "private-seed1", "plain", HOSTILE, "half"} <= set(lines)
    assert lines["half"]["state"] == "unreadable"
    assert "half written" in lines["half"]["error"]
    private = lines["private-seed0"]
    assert (private["state"], private["unit"], private["certificate"], private["rounds"]) == (
        "finished",
        "sample",
        True,
        2,
    )
    assert private["proven"] == pytest.approx(private["epsilon"], abs=1e-5)


def test_the_tables_of_a_list_are_those_of_the_whole_record(runs: Path) -> None:
    folder = RunFolder(runs / "private-seed0")
    whole, some = folder.experiment(), heads(folder.file("experiment.toml"))
    assert some["run"] == whole["run"]
    assert some["resolved"]["budget"] == whole["resolved"]["budget"]
    assert line_of(folder, "x")["clients"] == 4


def test_a_thousand_runs_are_read_once(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1000):
        (tmp_path / f"run-{number}").mkdir()
        for file in ("experiment.toml", "result.json", METRICS):
            (tmp_path / f"run-{number}" / file).hardlink_to(runs / "plain" / file)
    many = RunIndex(tmp_path)
    assert len(many.lines()) == 1000
    monkeypatch.setattr(run_index, "line_of", lambda *_: pytest.fail("read again"))
    shutil.rmtree(tmp_path / "run-7")
    assert len(many.lines()) == 999


def test_a_run_that_goes_away_is_a_sentence(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain", tmp_path / "short-lived")
    own = RunIndex(tmp_path)
    assert [line["state"] for line in own.lines()] == ["finished"]
    shutil.rmtree(tmp_path / "short-lived")
    assert own.lines() == []
    with pytest.raises(DpflError, match="There is no run"):
        own.open("short-lived")

    async def first() -> str:
        return await anext(EventStream(own, lambda name: False).watch("short-lived", 0))

    assert '"gone": true' in asyncio.run(first())
    assert RunIndex(tmp_path / "nowhere").lines() == []


def test_a_run_of_a_million_rounds_is_thinned(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "private-seed0", tmp_path / "long")
    folder, last = RunFolder(tmp_path / "long"), 1_000_000
    numbers = (
        "WITH RECURSIVE made(round) AS (SELECT 3 UNION ALL SELECT round + 1 FROM made WHERE "
        f"round < {last})"
    )
    with closing(sqlite3.connect(folder.file(METRICS))) as connection, connection:
        connection.execute(
            f"{numbers} INSERT INTO rounds SELECT round{', 1.0' * (len(COLUMNS) - 1)} FROM made"
        )
        connection.execute(
            f"{numbers} INSERT INTO updates SELECT round, '', 2.0, NULL, 1.0, NULL FROM made"
        )
    view = run_page(folder, "long")
    for shown, most in ((view["rows"]["round"], 4000), (view["signal"]["round"], 20_000)):
        assert most / 2 < len(shown) <= most
        assert shown[-1] == last
    assert news(folder, last - 3, {})["rows"]["round"] == [last - 2, last - 1, last]
    assert line_of(folder, "long")["rounds"] == 2  # as its result says


def test_of_a_private_run_the_page_gets_what_was_released(runs: Path) -> None:
    view = run_page(RunFolder(runs / "private-seed0"), "private-seed0")
    assert view["clients"]["accounts"][0] == {
        "name": "client-00000",
        "paid": view["clients"]["accounts"][0]["paid"],
        "remaining": 0,
    }
    assert len(view["signal"]["round"]) == 2
    assert view["nodes"] == []
    assert view["limits"]["client-00000"] == 20.0
    assert not [key for key in view if "update" in key]


def test_of_a_run_over_nodes_the_page_says_who_takes_part(runs: Path) -> None:
    own = RunIndex(runs)
    folder = own.open("hospitals/run")
    first, _, away = run_page(folder, "hospitals/run")["nodes"]
    assert (first["name"], first["limit"], first["away"]) == ("node-0", 8.0, None)
    assert 0 < first["proven"] <= 4.0
    assert (away["name"], away["proven"]) == ("node-2", None)
    assert "budget" in away["away"]
    found = verdict(own, folder)
    assert found["good"]
    assert {"node-0", "node-1"} <= set(found["checks"])
    said = folder.file("nodes") / "node-0.json"
    held = said.read_text()
    said.write_text(held.replace('"limit": 8.0', '"limit": 9.0'))
    assert not verdict(own, folder)["good"]
    said.write_text(held)


def test_runs_side_by_side_have_intervals_over_seeds(runs: Path) -> None:
    from dpfl.views.run_tables import RunTables

    found = comparison_page(
        [RunTables.read(runs / name, name) for name in ("private-seed0", "private-seed1", "plain")]
    )
    assert [(group["label"], int(group["seeds"])) for group in found["rows"]] == [
        ("private (2 seeds)", 2),
        ("plain", 1),
    ]
    first = found["rows"][0]
    assert "±" in first["metric"]
    assert all(half is not None for half in first["curves"]["epsilon"]["half"])
    assert any("fair comparison" in note for note in found["notes"])


def test_an_account_is_read_and_a_certificate_checked(runs: Path) -> None:
    own = RunIndex(runs)
    folder = own.open("private-seed0")
    before = {path.name: path.read_bytes() for path in folder.ledgers.iterdir()}
    assert ledgers_of(own, folder)["owners"] == [f"client-{number:05}" for number in range(4)]
    account = ledger_view(own, folder, "client-00002")
    assert account["spent"] <= account["limit"] == 20.0
    assert account["left"] == pytest.approx(20 - account["spent"], abs=1e-5)
    assert account["debits"] == len(account["last"]) == 2
    assert verdict(own, folder)["good"]
    assert {
        path.name: path.read_bytes()
        for path in folder.ledgers.iterdir()
        if path.suffix == ".sqlite"
    } == {name: content for name, content in before.items() if name.endswith(".sqlite")}
    for owner in ("../../private-seed1/ledger/client-00000", "metrics", "client-9"):
        with pytest.raises(DpflError, match="There is no ledger"):
            ledger_view(own, folder, owner)


@pytest.mark.parametrize(("epsilon", "rounds"), [(2.0, 100), (4.0, 80)])
def test_a_sketch_is_near_and_its_noise_is_enough(epsilon: float, rounds: int) -> None:
    asked = PlanningQuestion(epsilon, rounds, sizes=(600,) * 10)
    quick, whole = sketch(asked), tradeoff(asked)
    chosen = quick.recommended
    assert chosen.total <= 1.06 * whole.recommended.total
    assert (
        accountant("pld").epsilon(
            {Poisson(chosen.sampling_rate).event(chosen.noise_multiplier, 1): chosen.iterations},
            1e-5,
        )
        <= epsilon
    )
    for near, true in zip(quick.choices, whole.choices, strict=True):
        assert near.total == pytest.approx(true.total, rel=0.25)


def test_a_plan_is_an_experiment(runs: Path) -> None:
    wanted = planner.PlanRequest(epsilon=2.0, rounds=50, clients=5, size=300, model="linear")
    made = planner.experiment(wanted)
    assert made["algorithm"]["name"] == "auto"
    assert made["budget"] == {"epsilon": 2.0, "delta": 1e-5, "rounds": 50}
    answer = planner.answer(wanted)
    assert answer["bought"]["pld"] >= answer["bought"]["rdp"] >= answer["bought"]["rdp-classic"]
    assert answer["recommended"]["parameters"] == 7850
