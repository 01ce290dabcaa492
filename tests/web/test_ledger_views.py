"""Ledgers and certificates on their page: read, checked, and never written."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.web.ledger_views import ledger_view, ledgers_of, verdict
from dpfl.web.run_index import RunIndex
from dpfl.web.run_views import run_page

pytestmark = pytest.mark.xdist_group("web")


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


def test_an_account_is_read_and_a_certificate_checked(runs: Path) -> None:
    own = RunIndex(runs)
    folder = own.open("private-seed0")
    before = {path.name: path.read_bytes() for path in folder.ledgers.iterdir()}
    assert ledgers_of(own, folder)["owners"] == [f"client-{number:05}" for number in range(4)]
    account = ledger_view(own, folder, "client-00002")
    assert account["spent"] <= account["limit"] == 20.0
    budget = account["budget"]
    assert float(budget["figure"]) >= account["spent"]
    assert float(budget["remaining"]) == pytest.approx(20 - account["spent"], abs=2e-4)
    assert float(budget["remaining"]) + float(budget["figure"]) <= 20.0 + 1e-9
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
