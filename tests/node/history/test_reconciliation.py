"""`dpfl ledger reconcile`: all that a node signed is counted, and nothing twice."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.errors import DpflError
from dpfl.node.history.reconciliation import _add_all
from dpfl.node.statement import check, statement
from dpfl.privacy import Ledger, Limit
from dpfl.privacy.ledger.plans import proven_events
from dpfl.protocol.ledger_head import sign_head
from tests.node.history.test_rollback import reconciled, set_back, worked
from tests.node.loopback import (
    EVENT,
    ROUNDS,
    RUN,
    STEPS,
    Open,
    ask,
    join,
    work,
)


def test_what_was_signed_is_counted_and_the_node_works_again(opened: Open, tmp_path: Path) -> None:
    _, head = set_back(opened, tmp_path)
    node = opened()
    assert node.refused(join(heads=[head])) == "rolled-back"
    node.service.close()
    assert node.spending() == {EVENT: STEPS}
    assert "4 releases added" in reconciled(node.folder)
    assert node.spending() == {EVENT: 3 * STEPS}, "what was signed, and nothing twice"
    assert "nothing is missing" in reconciled(node.folder)
    node = opened()
    assert node.refused(join(heads=[head])) == "wrong-run", "a run that was under way is over"
    assert node(join(run="another", heads=[head])).header["kind"] == "joined"
    assert node(work(run="another")).header["kind"] == "reply"
    assert node.spending() == {EVENT: 4 * STEPS}
    signed = node(ask("ask-statement", run="another")).header["statement"]
    assert sum(check(signed, signed["statement"]["public_key"])["releases"].values()) == 4 * STEPS


def test_a_head_of_a_server_s_file_is_counted_without_the_server(
    opened: Open, tmp_path: Path
) -> None:
    node, head = set_back(opened, tmp_path)
    file = tmp_path / "heads.json"
    file.write_text(json.dumps({"a": [], "b": [head]}))
    assert "4 releases added" in reconciled(node.folder, file)
    assert node.spending() == {EVENT: 3 * STEPS}


def test_an_earlier_head_of_what_was_reconciled_is_included(opened: Open, tmp_path: Path) -> None:
    node = opened()
    first = worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "backup")
    node = opened()
    second = worked(node, 1)
    third = worked(node, 2)
    node.service.close()
    node = opened()
    fourth = worked(node, 3)
    node.service.close()
    shutil.rmtree(node.folder)
    shutil.copytree(tmp_path / "backup", node.folder)
    (tmp_path / "signed.json").write_text(json.dumps([fourth]))
    reconciled(node.folder, tmp_path / "signed.json")
    assert node.spending() == {EVENT: 4 * STEPS}
    node = opened()
    assert (
        node(join(run="another", heads=[first, second, third, fourth])).header["kind"] == "joined"
    )


def test_a_lost_ledger_is_made_again_from_replies_or_from_the_log(
    opened: Open, tmp_path: Path
) -> None:
    for name, lost in (
        ("replies", ("ledger", "orders.sqlite")),
        ("log", ("ledger", "orders.sqlite", "replies")),
    ):
        node = opened(name)
        worked(node, 0, 1)
        node.service.close()
        for part in lost:
            (shutil.rmtree if (node.folder / part).is_dir() else Path.unlink)(node.folder / part)
        assert "4 releases added" in reconciled(node.folder)
        assert node.spending() == {EVENT: 2 * STEPS}
        node = opened(name)
        assert node(join()).header["kind"] == "joined"
        assert node(work()).header["kind"] == "reply", "of a run that the ledger does not know"
        assert node.spending() == {EVENT: 3 * STEPS}


def test_a_lost_ledger_is_not_made_again_from_a_log_without_its_beginning(opened: Open) -> None:
    node = opened()
    worked(node, 0)
    node.service.close()
    for part in ("ledger", "replies"):
        shutil.rmtree(node.folder / part)
    (node.folder / "node.log.4").write_text("")
    result = CliRunner().invoke(app, ["ledger", "reconcile", str(node.folder)])
    assert isinstance(result.exception, DpflError)
    assert "does not go back to the beginning" in str(result.exception)
    assert not (node.folder / "ledger" / "b.sqlite").exists()


def test_a_clone_that_went_on_is_counted_beside_what_the_original_did(
    opened: Open, tmp_path: Path
) -> None:
    node = opened()
    worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "clone")
    node, clone = opened(), opened("clone")
    worked(node, 1)
    other = worked(clone, 1, 2)
    assert node.refused(join(heads=[other])) == "rolled-back"
    node.service.close()
    clone.service.close()
    reconciled(node.folder)
    assert node.spending() == {EVENT: 4 * STEPS}, (
        "one round of both, one of the original, two of the clone"
    )


def test_a_node_that_runs_is_not_reconciled(opened: Open) -> None:
    node = opened()
    result = CliRunner().invoke(app, ["ledger", "reconcile", str(node.folder)])
    assert isinstance(result.exception, DpflError)
    assert "Another process" in str(result.exception)


def test_what_was_planned_is_counted_with_what_was_made(opened: Open, tmp_path: Path) -> None:
    """A run that stops early by what came out costs what it fixed beforehand, also where its debits
    were lost.
    """
    node = opened()
    worked(node)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "backup")
    node = opened()
    head = worked(node, 0)
    node.service.close()
    shutil.rmtree(node.folder)
    shutil.copytree(tmp_path / "backup", node.folder)
    (tmp_path / "signed.json").write_text(json.dumps(head))
    reconciled(node.folder, tmp_path / "signed.json")
    with closing(Ledger.read(node.folder / "ledger" / "b.sqlite")) as ledger:
        assert ledger.spending() == {EVENT: STEPS}
        assert proven_events(ledger) == {EVENT: ROUNDS * STEPS}


def test_shares_of_noise_stay_what_they_are_when_they_are_reconciled(tmp_path: Path) -> None:
    """They hold against whoever sees sums only, and the statement goes on to say so."""
    key = Ed25519PrivateKey.generate()
    with closing(Ledger.open(tmp_path / "b.sqlite", "b", "sample", "add/remove one")) as ledger:
        ledger.start()
        ledger.debit(RUN, f"{RUN}/shared 3-1/x", EVENT, 2)
        ledger.debit(RUN, f"{RUN}/y", EVENT, 1)
        signed = sign_head(ledger, key)
    assert set(signed.head.releases) == {(EVENT, "shared 3-1", 2), (EVENT, "", 1)}
    with closing(Ledger.open(tmp_path / "new.sqlite", "b", "sample", "add/remove one")) as ledger:
        _add_all(ledger, [signed], tmp_path)
        assert ledger.spending() == {EVENT: 3}
        assert (
            "sums over at least 3"
            in statement(ledger, Limit(30.0, 1e-5), "", key)["statement"]["adversary"]
        )
