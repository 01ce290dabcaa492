"""Pages of a run and of a comparison get what was released, and no more than they can show."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dpfl.privacy.figures import epsilon_text
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.run.metrics import COLUMNS
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.web.run_index import RunIndex
from dpfl.web.run_line import line_of
from dpfl.web.run_views import comparison_page, news, run_page

pytestmark = pytest.mark.xdist_group("web")


@pytest.mark.parametrize("how", ["settings", "owner"])
def test_limits_are_read_from_ledgers_within_the_folder_alone(
    runs: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs / "private-seed0", tmp_path / "runs" / "x")
    shutil.copytree(runs / "private-seed0" / "ledger", tmp_path / "elsewhere")
    folder = RunFolder(tmp_path / "runs" / "x")
    if how == "settings":
        text = folder.file("experiment.toml").read_text()
        folder.file("experiment.toml").write_text(
            text.replace("[resolved]\n", f"[resolved]\nledger = '{tmp_path}/elsewhere'\n")
        )
    else:
        stated = folder.json("statement.json")
        stated["per_client"] = {"../../../elsewhere/client-00000": 1.0}
        folder.write_json("statement.json", stated)
    assert ledger_path(tmp_path / "elsewhere", "client-00000").is_file()
    own = RunIndex(tmp_path / "runs")
    budgets = run_page(own.open("x"), "x", own.root)["budgets"]
    assert budgets
    assert {budget["limit"] for budget in budgets.values()} == {""}


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
    account = view["clients"]["accounts"][0]
    assert (account["name"], account["state"], account["remaining"]) == (
        "client-00000",
        "took part",
        "0",
    )
    assert int(account["releases"]) > 0
    assert len(view["signal"]["round"]) == 2
    assert view["nodes"] == []
    assert view["budgets"]["client-00000"]["limit"] == "20"
    assert not [key for key in view if "update" in key]


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


def test_a_page_that_watches_gets_every_sentence_and_computes_none(runs: Path) -> None:
    folder = RunFolder(runs / "private-seed0")
    view = run_page(folder, "private-seed0")
    resolved = folder.experiment()["resolved"]
    event = news(folder, 0, resolved)
    spent = epsilon_text(folder.json("result.json")["privacy"]["used"])
    assert event["epsilon_so_far"] == view["epsilon_so_far"]
    assert (event["epsilon_so_far"]["figure"], event["epsilon_so_far"]["limit"]) == (spent, "20")
    assert event["captions"].items() <= view["captions"].items()
    assert view["captions"]["epsilon"].startswith(f"{spent} of 20 allowed (for one sample, delta ")
    assert view["captions"]["signal"].startswith("The last step is ")
    plain = run_page(RunFolder(runs / "plain"), "plain")
    assert plain["epsilon_so_far"] is None
    assert (plain["captions"]["epsilon"], plain["captions"]["signal"]) == ("", "")
    assert "learning rate" in plain["captions"]["loss"]
    assert plain["clients"]["none"] == "This run adds no noise, so it has no accounts."


def test_lost_replies_have_round_client_and_reason(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "private-seed0", tmp_path / "lossy")
    folder = RunFolder(tmp_path / "lossy")
    folder.file("result.json").unlink()
    with closing(sqlite3.connect(folder.file(METRICS))) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS lost (line TEXT)")
        connection.execute("INSERT INTO lost VALUES ('round 2, client 1: no\nreply')")
    clients = news(folder, 0, folder.experiment()["resolved"])["clients"]
    assert clients["lost"] == [{"round": 2, "client": "client-00001", "reason": "no\nreply"}]
    assert [account["state"] for account in clients["accounts"]] == [
        "budget spent",
        "no\nreply (round 2)",
        "budget spent",
        "budget spent",
    ]
