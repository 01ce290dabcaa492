"""`dpfl ledger`: what was spent with its unit and delta, limits, and new ledgers beside others."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from dpfl.privacy import Ledger, Limit
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.ledger.client_ledgers import FEDERATION
from tests.cli.command_line import dpfl, refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(
        Ledger.open(tmp_path / "a.sqlite", "a", "sample", "add/remove one", Limit(8.0, 1e-5, "rdp"))
    ) as ledger:
        ledger.plan("run", gaussian(3.0), 4)
        ledger.debit("run", "run/one", gaussian(3.0), 2)
    return tmp_path


def test_what_was_spent_is_shown_with_all_that_a_guarantee_needs(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (row,) = json.loads(dpfl(capsys, "ledger", "show", str(folder), "--json")[1])
    assert (row["unit"], row["delta"], row["accountant"], row["allowed"]) == (
        "sample", 1e-5, "rdp", 8.0,
    )  # fmt: skip
    assert 0 < row["epsilon"] < row["proven"] < 8
    assert list(row["releases"].values()) == [2]
    _, out, _ = dpfl(capsys, "ledger", "show", str(folder))
    assert "of 8" in out
    assert "fixed in advance" in out
    _, out, _ = dpfl(capsys, "ledger", "check", str(folder))
    assert "a.sqlite: intact, 1 debit of a (one sample" in out


def test_a_new_ledger_is_like_the_others_and_a_limit_can_be_changed(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert dpfl(capsys, "ledger", "new", str(folder), "b")[0] == 0
    assert "exists already" in refused(capsys, "ledger", "new", str(folder), "b")
    assert dpfl(capsys, "ledger", "limit", str(folder / "b.sqlite"), "--epsilon", "2")[0] == 0
    rows = json.loads(dpfl(capsys, "ledger", "show", str(folder), "--json")[1])
    assert [(row["ledger"], row["allowed"]) for row in rows] == [("a.sqlite", 8.0), ("b.sqlite", 2)]


def test_a_federations_one_ledger_has_no_clients_beside_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "There is no ledger" in refused(capsys, "ledger", "check", str(tmp_path))
    path = tmp_path / f"{FEDERATION}.sqlite"
    Ledger.open(path, FEDERATION, "client", "add/remove one").close()
    assert "ledgers of their own" in refused(capsys, "ledger", "new", str(tmp_path), "b")
