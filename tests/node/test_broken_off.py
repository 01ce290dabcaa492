"""A node that is killed at the worst moments, and ledgers that were tampered with: no release is
uncounted, and none is made twice where its reply was kept."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfl.errors import DpflError
from dpfl.node.policy import SEED
from dpfl.node.service import Service
from dpfl.node.storage.task_log import TaskLog
from dpfl.privacy.ledger.client_ledgers import ledger_path
from tests.conftest import PATIENCE
from tests.node.loopback import EVENT, STEPS, Asked, join, new_node, round_of, work


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _serve(policy: Path, where: str, message: bytes) -> None:
    """In a process of its own, which ends itself at a place of an order."""
    service = Service.open(policy)
    service.answer(join())
    if where == "begun":
        begin = service._state.log.begin
        service._state.log.begin = lambda order: (begin(order), die())  # type: ignore[method-assign,assignment,func-returns-value]
    elif where == "debited":
        service._state.log.keep = die  # type: ignore[method-assign]
    elif where == "half kept":
        os.fsync = die
    elif where == "kept":
        service._state.log.see = die  # type: ignore[method-assign]
    service.answer(message)


def killed(policy: Path, where: str, message: bytes) -> None:
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(policy, where, message)
    )
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL


PLACES = {"begun": 1, "debited": 2, "half kept": 2, "kept": 1}
"""How often the order is paid for by the end: again where it was paid for and its reply is not
there, since noise is fresh.
"""


@pytest.mark.parametrize("where", PLACES)
def test_a_node_that_is_killed_has_counted_every_release_and_sends_a_kept_reply_again(
    tmp_path: Path, where: str
) -> None:
    policy, message = new_node(tmp_path / "b"), work()
    node = Asked.open(policy)
    node(join())
    node.service.close()
    killed(policy, where, message)
    paid = node.spending()
    assert paid == ({} if where == "begun" else {EVENT: STEPS}), "before anything could leave"
    kept = list((node.folder / "replies").glob("*.letter"))
    assert len(kept) == (where == "kept")
    again = Asked.open(policy)
    again(join())
    before = kept[0].read_bytes() if kept else b""
    answer = again.service.answer(message)
    assert not kept or answer == before
    assert node.spending() == {EVENT: STEPS * PLACES[where]}
    assert not list((node.folder / "replies").glob("*.new"))
    assert again.service.answer(message) == answer
    assert again(work(round_of(1))).header["kind"] == "reply"
    again.service.close()


def test_with_keyed_randomness_the_same_order_is_the_same_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, message = new_node(tmp_path / "b", tell={"entropy": "keyed"}), work()
    with pytest.raises(DpflError, match="is for tests"):
        Service.open(policy)
    monkeypatch.setenv(SEED, "7")
    node = Asked.open(policy)
    node(join())
    node.service.close()
    killed(policy, "debited", message)
    again = Asked.open(policy)
    again(join())
    assert again(message).header["kind"] == "reply"
    assert again.spending() == {EVENT: STEPS}
    again.service.close()


def test_an_order_that_breaks_off_every_time_is_given_up(tmp_path: Path) -> None:
    policy, message = new_node(tmp_path / "b"), work()
    node = Asked.open(policy)
    node(join())
    node.service.close()
    for _ in range(3):
        killed(policy, "debited", message)
    again = Asked.open(policy)
    again(join())
    assert again.refused(message) == "too-many-attempts"
    assert again.spending() == {EVENT: 3 * STEPS}
    assert again(work(round_of(1))).header["kind"] == "reply"
    again.service.close()


# Ledgers


def _guards_off(connection: sqlite3.Connection) -> None:
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall():
        connection.execute(f"DROP TRIGGER {name}")


TAMPERED: dict[str, tuple[Callable[[sqlite3.Connection], Any], str]] = {
    "a row removed": (lambda do: do.execute("DELETE FROM debits WHERE id = 1"), "missing"),
    "the last row removed": (lambda do: do.execute("DELETE FROM debits WHERE id = 3"), "missing"),
    "a row changed": (
        lambda do: do.execute("UPDATE debits SET count = 1 WHERE id = 2"),
        "row 2 of debits",
    ),
    "a row added": (
        lambda do: do.execute(
            "INSERT INTO debits SELECT 4, run, 'x', event, 1, at, link + 1, seal FROM debits WHERE "
            "id = 3"
        ),
        "debits",
    ),
    "a limit changed": (lambda do: do.execute("UPDATE limits SET epsilon = 99"), "row 1 of limits"),
}


@pytest.fixture
def worked(tmp_path: Path) -> Asked:
    """A node that stopped after three rounds."""
    node = Asked.open(new_node(tmp_path / "b"))
    node(join())
    for number in range(3):
        node(work(round_of(number)))
    node.service.close()
    return node


@pytest.mark.parametrize("what", TAMPERED)
def test_a_node_does_not_start_on_a_ledger_that_was_tampered_with_and_says_where(
    worked: Asked, what: str
) -> None:
    change, said = TAMPERED[what]
    path = ledger_path(worked.folder / "ledger", "b")
    connection = sqlite3.connect(path)
    forms = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    _guards_off(connection)
    change(connection)
    for (form,) in forms:
        connection.execute(form)
    connection.commit()
    connection.close()
    with pytest.raises(DpflError, match=said) as refused:
        Service.open(worked.folder / "policy.toml")
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_node_does_not_start_on_a_ledger_from_before_or_on_none(
    tmp_path: Path, worked: Asked
) -> None:
    path = ledger_path(worked.folder / "ledger", "b")
    copy = path.read_bytes()
    again = Asked.open(worked.folder / "policy.toml")
    again(join())
    again(work(round_of(3)))
    again.service.close()
    path.write_bytes(copy)
    with pytest.raises(DpflError, match=r"older than .*last release"):
        Service.open(worked.folder / "policy.toml")
    path.unlink()
    with pytest.raises(DpflError, match="is missing"):
        Service.open(worked.folder / "policy.toml")


def test_runs_whose_orders_are_lost_are_over(worked: Asked) -> None:
    (worked.folder / "orders.sqlite").unlink()
    node = Asked.open(worked.folder / "policy.toml")
    assert node.refused(work(round_of(3))) == "not-joined"
    assert node.refused(join()) == "wrong-run"
    assert node(join(run="another")).header["kind"] == "joined"
    node.service.close()


def test_a_ledger_of_other_data_is_refused(worked: Asked, tmp_path: Path) -> None:
    other = new_node(tmp_path / "other", first=100)
    (worked.folder / "own.npz").write_bytes((other.parent / "own.npz").read_bytes())
    with pytest.raises(DpflError, match="counts other data"):
        Service.open(worked.folder / "policy.toml")


def test_orders_of_another_version_are_said(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "orders.sqlite")
    connection.execute("CREATE TABLE runs (a)")
    connection.close()
    with pytest.raises(DpflError, match="cannot be used"):
        TaskLog(tmp_path)
