"""What the folder of a run holds, as tables."""

from __future__ import annotations

from pathlib import Path

from dpfl.run.metrics import COLUMNS, RoundRow, read_thinned
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.views.figures.run_figures import pictures
from dpfl.views.run_tables import LostReply, RunTables


def test_of_private_runs_no_single_update_is_kept(runs: Path) -> None:
    assert RunTables.read(runs / "private-seed0").single == []
    plain = RunTables.read(runs / "plain").single
    assert sorted({(update.round, update.whose) for update in plain}) == [
        (round, f"client-{client:05}") for round in (1, 2) for client in range(4)
    ]
    public = RunTables.read(runs / "public").single
    assert {update.whose for update in public} == {"public 0", "public 1", "public 2"}
    assert "updates" in {picture.name for picture in pictures([RunTables.read(runs / "plain")])}


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


def test_a_lost_reply_is_read_from_its_line() -> None:
    reply = LostReply.parse("round 3, client 1: it: timed\nout", ["a", "b"])
    assert reply.to_dict() == {"round": 3, "client": "b", "reason": "it: timed\nout"}
    assert LostReply.parse("round 3, client 7: late", ["a"]).client == "client 7"
    assert LostReply.parse("<b>", []).to_dict() == {"round": None, "client": "", "reason": "<b>"}
