"""Pages of a run and of a comparison get what was released, and no more than they can show."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

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
    assert run_page(own.open("x"), "x", own.root)["limits"] == {}


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
