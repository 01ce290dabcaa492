"""Ledgers that went two ways from one row: while their node ran, with its memory, under one start,
or beside its own log.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.engines.head_memory import HeadMemory
from dpfl.errors import DpflError
from dpfl.node.history.reconciliation import _add_all
from dpfl.node.storage.task_log import TaskLog
from dpfl.privacy import Ledger
from dpfl.privacy.ledger.starts import anchor_rows
from dpfl.protocol.head_words import head_from_words
from dpfl.protocol.keys import load_private, public_key_hex, sign
from dpfl.protocol.ledger_head import SignedHead, sign_head
from dpfl.protocol.messages import SignedMessage
from tests.node.history.test_rollback import copied, reconciled, set_back, worked
from tests.node.loopback import EVENT, RUN, STEPS, Asked, Open, join, round_of, work

DATABASES = ("ledger/b.sqlite", "orders.sqlite")


def backed_up(source: Path, target: Path) -> None:
    """The databases, by SQLite's own backup, which also writes over those of a node that runs."""
    (target / "ledger").mkdir(parents=True, exist_ok=True)
    for name in DATABASES:
        with (
            closing(sqlite3.connect(source / name)) as one,
            closing(sqlite3.connect(target / name)) as other,
        ):
            one.backup(other)


def public(node: Asked) -> str:
    return public_key_hex(load_private(node.folder / "node.pem").public_key())


def resumed(opened: Open, place: str, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """A machine whose memory was set back with its disk: the same start, and runs that it has
    joined.
    """
    with monkeypatch.context() as patch:
        patch.setattr("dpfl.privacy.ledger.ledger.Ledger.start", lambda ledger, least=0: None)
        node = opened(place)
    node.service._state.history.joined_runs.add(RUN)
    return node


def remembered(node: Asked, *heads: dict[str, Any]) -> HeadMemory:
    memory = HeadMemory({"b": public(node)})
    for head in heads:
        memory.take("b", SignedMessage({"ledger_head": head}, {}))
    return memory


# A disk that is set back beneath a node


def test_databases_that_are_set_back_while_the_node_runs_end_its_work(
    opened: Open, tmp_path: Path
) -> None:
    """Fault: the process was trusted to write one chain, and made a round again."""
    node = opened()
    worked(node, 0)
    backed_up(node.folder, tmp_path / "backup")
    worked(node, 1, 2)
    backed_up(tmp_path / "backup", node.folder)
    assert node.spending() == {EVENT: STEPS}
    assert node.refused(work(round_of(3))) == "rolled-back"
    assert node.refused(join()) == "rolled-back"
    assert node.spending() == {EVENT: STEPS}
    node.service.close()
    with pytest.raises(DpflError, match="dpfl ledger reconcile"):
        opened()
    reconciled(node.folder)
    assert node.spending() == {EVENT: 3 * STEPS}


def test_a_ledger_whose_file_was_replaced_while_the_node_runs_ends_its_work(
    opened: Open, tmp_path: Path
) -> None:
    """Fault: debits went on into a file that no folder held any more."""
    node = opened()
    worked(node, 0)
    backed_up(node.folder, tmp_path / "backup")
    worked(node, 1, 2)
    shutil.rmtree(node.folder / "ledger")
    shutil.copytree(tmp_path / "backup" / "ledger", node.folder / "ledger")
    assert node.refused(work(round_of(3))) == "rolled-back"
    assert node.spending() == {EVENT: STEPS}, "nothing was debited"


def test_a_ledger_that_is_removed_while_the_node_runs_ends_its_work(opened: Open) -> None:
    node = opened()
    worked(node, 0)
    shutil.rmtree(node.folder / "ledger")
    assert node.refused(work(round_of(1))) in ("rolled-back", "ledger")
    node.service.close()
    with pytest.raises(DpflError, match="dpfl ledger reconcile"):
        opened()
    reconciled(node.folder)
    assert node.spending() == {EVENT: STEPS}


# Memory that is set back with it


def test_two_chains_of_one_start_are_both_remembered_and_both_counted(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: a server kept the furthest head of a start, and 6 of 8 releases were counted."""
    node = opened()
    first = worked(node, 0)
    shutil.copytree(node.folder, tmp_path / "machine")
    last = worked(node, 1, 2)
    machine = resumed(opened, "machine", monkeypatch)
    other = machine(work(round_of(3))).header["ledger_head"]
    assert other["head"]["starts"][0][:2] == last["head"]["starts"][0][:2], "one start"
    memory = remembered(node, first, last, other)
    assert [one.to_words() for one in memory.of("b")] == [last, other]
    assert memory.is_doubtful("b")
    assert machine.refused(join(heads=memory.shown_to("b"))) == "rolled-back"
    for one in (node, machine):
        one.service.close()
    reconciled(machine.folder)
    with closing(Ledger.read(machine.folder / "ledger" / "b.sqlite")) as ledger:
        assert ledger.spending() == {EVENT: 4 * STEPS}, (
            "one round of both, two of one and one of the other"
        )


def test_a_third_chain_of_one_start_is_no_part_of_the_second(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = opened()
    worked(node, 0)
    for name in ("second", "third"):
        shutil.copytree(node.folder, tmp_path / name)
    heads = [worked(node, 1, 2, 3)]
    second = resumed(opened, "second", monkeypatch)
    heads += [second(work(round_of(number))).header["ledger_head"] for number in (1, 2)][-1:]
    third = tmp_path / "third"
    (tmp_path / "signed.json").write_text(json.dumps(heads))
    reconciled(third, tmp_path / "signed.json")
    with closing(Ledger.read(third / "ledger" / "b.sqlite")) as ledger:
        assert ledger.spending() == {EVENT: 6 * STEPS}, "one, three and two"


def test_chains_of_one_start_are_told_apart_at_any_distance() -> None:
    """Anchors are close together near the end, and never farther apart than a tenth of their
    distance to it.
    """
    for rows in (1, 2, 17, 1000, 123_456):
        found = anchor_rows(rows, ())
        assert found == sorted(set(found))
        assert all(0 < row < rows for row in found)
        assert set(range(max(1, rows - 32), rows)) <= set(found)
        assert len(found) <= 128
        for earlier, later in itertools.pairwise(found):
            assert rows - earlier <= 1.1 * (rows - later) + 1


def signed(
    name: str, folder: Path, key: Ed25519PrivateKey, before: int, after: int
) -> list[SignedHead]:
    """Heads after each release of a ledger of one start, from `before` releases on."""
    found = []
    with closing(Ledger.open(folder / f"{name}.sqlite", "b", "sample", "add/remove one")) as ledger:
        if not ledger.starts:
            ledger.start()
        for number in range(before, after):
            ledger.debit(RUN, f"{RUN}/{name}/{number}", EVENT, 1)
            found.append(sign_head(ledger, key))
    return found


def test_a_ledger_from_a_live_backup_counts_what_it_lost_and_little_more(tmp_path: Path) -> None:
    """Of 400 releases 300 were lost: all are counted, and what no anchor shows to be shared is
    counted twice.
    """
    key = Ed25519PrivateKey.generate()
    signed("ledger", tmp_path, key, 0, 100)
    shutil.copy(tmp_path / "ledger.sqlite", tmp_path / "backup.sqlite")
    (*_, last) = signed("ledger", tmp_path, key, 100, 400)
    with closing(
        Ledger.open(tmp_path / "backup.sqlite", "b", "sample", "add/remove one")
    ) as ledger:
        _add_all(ledger, [last], tmp_path)
        assert 400 <= ledger.spending()[EVENT] <= 400 + 0.1 * 300


def test_a_head_of_a_reconciled_chain_is_included_and_one_that_left_it_is_not(
    tmp_path: Path,
) -> None:
    key = Ed25519PrivateKey.generate()
    signed("base", tmp_path, key, 0, 5)
    for name in ("lost", "other", "own"):
        shutil.copy(tmp_path / "base.sqlite", tmp_path / f"{name}.sqlite")
    lost, other = (signed(name, tmp_path, key, 5, 60) for name in ("lost", "other"))
    with closing(Ledger.open(tmp_path / "own.sqlite", "b", "sample", "add/remove one")) as ledger:
        _add_all(ledger, [lost[-1]], tmp_path)
        inside = [
            ledger.includes(one.head.tail, one.head.start, dict(one.head.anchors)) for one in lost
        ]
        outside = [
            ledger.includes(one.head.tail, one.head.start, dict(one.head.anchors)) for one in other
        ]
    assert all(inside[-32:]), "near its end every row is known"
    assert not any(outside), "however far from its end"


def test_what_no_anchor_shows_is_counted_again_and_not_left_out(tmp_path: Path) -> None:
    """A head of the same start, far from the one that was reconciled, may be of another chain."""
    key = Ed25519PrivateKey.generate()
    signed("base", tmp_path, key, 0, 5)
    for name in ("lost", "other", "own"):
        shutil.copy(tmp_path / "base.sqlite", tmp_path / f"{name}.sqlite")
    lost, other = (
        signed("lost", tmp_path, key, 5, 200)[-1],
        signed("other", tmp_path, key, 5, 7)[-1],
    )
    with closing(Ledger.open(tmp_path / "own.sqlite", "b", "sample", "add/remove one")) as ledger:
        _add_all(ledger, [lost], tmp_path)
        _add_all(ledger, [other], tmp_path)
        assert 202 <= ledger.spending()[EVENT] <= 202 + 0.1 * 202


def test_a_head_without_anchors_is_read_as_it_was_signed(opened: Open) -> None:
    """Heads of the first format."""
    node = opened()
    head = worked(node, 0)
    key = load_private(node.folder / "node.pem")
    words = replace(head_from_words(head).head, anchors=())
    old = SignedHead(words, sign(words.to_words(), key))
    assert words.to_words()["format"] == 1
    assert head_from_words(old.to_words()) == old
    worked(node, 1)
    assert node(join(heads=[old.to_words()])).header["kind"] == "joined"


# What a server does with them


# What a node's own folder tells


def test_neither_a_statement_nor_a_check_is_made_from_a_ledger_that_is_behind_its_orders(
    opened: Open, tmp_path: Path
) -> None:
    """Fault: the node did not start, and `dpfl node statement` signed too little all the same."""
    node = opened()
    worked(node, 0)
    node.service.close()
    (tmp_path / "backup").mkdir()
    copied(node.folder, tmp_path / "backup", "ledger")
    node = opened()
    worked(node, 1, 2)
    node.service.close()
    copied(tmp_path / "backup", node.folder, "ledger")
    shutil.rmtree(node.folder / "replies")
    (node.folder / "node.log").unlink()
    out = tmp_path / "statement.json"
    result = CliRunner().invoke(app, ["node", "statement", str(node.folder), "--out", str(out)])
    assert isinstance(result.exception, DpflError)
    assert "dpfl ledger reconcile" in str(result.exception)
    assert not out.exists()
    assert "lacks" in CliRunner().invoke(app, ["node", "check", str(node.folder)]).output


def test_orders_are_read_without_disturbing_a_node_at_work(opened: Open) -> None:
    node = opened()
    worked(node, 0)
    unfinished = node.folder / "replies" / "one.new"
    unfinished.write_bytes(b"a reply that is being written")
    assert TaskLog.tail_in(node.folder).links
    assert TaskLog.counts_in(node.folder) == {EVENT: STEPS}
    assert unfinished.exists()


def test_a_node_works_again_once_its_own_ledger_is_back(opened: Open, tmp_path: Path) -> None:
    """Fault: what it had been shown was kept for ever, and `reconcile` found nothing to do."""
    node, head = set_back(opened, tmp_path)
    node = opened()
    assert node.refused(join(heads=[head])) == "rolled-back"
    node.service.close()
    shutil.rmtree(node.folder)
    shutil.copytree(tmp_path / "backup", node.folder)
    shutil.copytree(node.folder, tmp_path / "right")
    right = opened("right")
    last = worked(right, 1)
    right.service.close()
    node = opened()
    assert node.refused(join(heads=[last])) == "rolled-back"
    node.service.close()
    copied(tmp_path / "right", node.folder, "ledger", "orders.sqlite", "replies", "node.log")
    node = opened()
    assert node(join(heads=[last])).header["kind"] == "joined"
    assert node(work(round_of(2))).header["kind"] == "reply"


def test_an_owner_who_changed_the_neighbours_is_told_what_can_be_done(
    opened: Open, tmp_path: Path
) -> None:
    node, head = set_back(opened, tmp_path)
    for name in ("ledger", "replies"):
        shutil.rmtree(node.folder / name)
    for name in ("orders.sqlite", "node.log"):
        (node.folder / name).unlink()
    node = opened(limits={"neighbours": "replace one"})
    assert node.refused(join(heads=[head])) == "rolled-back"
    node.service.close()
    result = CliRunner().invoke(app, ["ledger", "reconcile", str(node.folder)])
    assert isinstance(result.exception, DpflError)
    assert "a name and a key of its own" in str(result.exception)


# Servers that know different things


def test_a_node_that_was_set_back_and_worked_for_another_server_counts_both_when_it_comes_back(
    opened: Open, tmp_path: Path
) -> None:
    """The second server never saw what was lost; its rows pass the number of those that were, and
    are others.
    """
    node, lost = set_back(opened, tmp_path)
    node = opened()
    assert node(join(run="another")).header["kind"] == "joined"
    for number in range(4):
        later = node(work(round_of(number), run="another")).header["ledger_head"]
    assert later["head"]["rows"] > lost["head"]["rows"]
    before = node.rows()
    assert node.refused(join(heads=[lost])) == "rolled-back"
    assert node.refused(work(round_of(4), run="another")) == "rolled-back", (
        "for the second server, too"
    )
    assert node.rows() == before
    node.service.close()
    reconciled(node.folder)
    assert node.spending() == {EVENT: 7 * STEPS}, (
        "one round of both, two that were lost, four for the second server"
    )
    node = opened()
    assert node(join(run="third", heads=[lost, later])).header["kind"] == "joined"
