"""A release is in the client's ledger, on disk, before anything leaves."""

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from dpfl.client.runner import ClientRunner
from dpfl.errors import DpflError
from dpfl.privacy import (
    Ledger,
    Limit,
    accountant,
)
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.ledger.client_ledgers import ledger_path
from tests.client.small_client import (
    CLASSES,
    EVENT,
    FEATURES,
    PRIVATE,
    site,
    spent,
    start,
    work,
)
from tests.conftest import PATIENCE


class Watcher(nn.Module):
    """Reads the ledger, through a connection of its own, whenever it is shown an image."""

    folder: ClassVar[Path]
    seen: ClassVar[list[dict[Any, int]]]

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        Watcher.seen.append(spent(Watcher.folder))
        return self.layer(x)


class Collapses(Watcher):
    def forward(self, x: Tensor) -> Tensor:
        raise MemoryError("the machine gave way")


def slow_disk(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Between the owner's consent and the flush to disk: as long as training takes, and `then`."""
    flush, await_, trained = Ledger._flush, ClientRunner._await, threading.Event()

    def awaited(self: ClientRunner, *values: Any) -> None:
        trained.set()
        await_(self, *values)

    def slowly(self: Ledger) -> None:
        with self._errors(), self._rolled_back_on_failure():
            assert trained.wait(timeout=PATIENCE)
            then()
        flush(self)

    monkeypatch.setattr(Ledger, "_flush", slowly)
    monkeypatch.setattr(ClientRunner, "_await", awaited)


def test_the_debit_is_on_disk_before_the_reply_leaves_though_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_disk(monkeypatch, lambda: None)
    Watcher.folder, Watcher.seen = tmp_path, []
    node = ClientRunner(site(tmp_path, Watcher()))
    reply = node.work(PRIVATE, start(Watcher()))
    assert reply.update is not None
    assert spent(tmp_path) == {EVENT: 2}
    assert Watcher.seen, "it trained"
    assert all(held == {} for held in Watcher.seen), "and it did so while the disk was written"
    node.close()


def test_a_disk_that_fails_after_training_lets_nothing_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    slow_disk(monkeypatch, full)
    with pytest.raises(DpflError, match="nothing was released"):
        work(site(tmp_path))
    assert spent(tmp_path) == {}


def test_the_debit_is_awaited_where_training_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_disk(monkeypatch, lambda: None)
    node = ClientRunner(site(tmp_path, Collapses()))
    with pytest.raises(MemoryError):
        node.work(PRIVATE, start(Collapses()))
    assert spent(tmp_path) == {EVENT: 2}
    node.close()


def test_a_crash_in_training_leaves_the_debit_in_the_ledger_and_no_update(tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        work(site(tmp_path, Collapses()), vector=start(Collapses()))
    assert spent(tmp_path) == {EVENT: 2}


def test_only_the_client_that_works_is_debited(tmp_path: Path) -> None:
    work(site(tmp_path))
    assert spent(tmp_path, 1) == {EVENT: 2}
    assert not ledger_path(tmp_path, "client-00000").exists()


def affordable(limit: Limit) -> int:
    return limit.remaining({}, EVENT)


def test_a_client_over_budget_refuses_says_so_and_releases_nothing(tmp_path: Path) -> None:
    limit = Limit(10.0, 1e-5, "rdp")
    most = affordable(limit)
    assert most > 0
    reply = work(site(tmp_path, limit=limit), replace(PRIVATE, steps=most + 1))
    assert reply.update is None
    assert "budget" in reply.refusal
    assert "epsilon 10" in reply.refusal
    assert not reply.failure
    assert not reply.diverged
    assert spent(tmp_path) == {}
    kept = work(site(tmp_path, limit=limit), replace(PRIVATE, steps=most))
    assert kept.update is not None
    assert accountant("rdp").epsilon(spent(tmp_path), 1e-5) <= 10.0


def test_the_owner_s_own_limit_holds_whatever_the_run_says(tmp_path: Path) -> None:
    """Fault: the budget enforced by the server instead of at the node that owns the data."""
    Ledger.open(
        ledger_path(tmp_path, "client-00001"),
        "client-00001",
        "sample",
        ADD_REMOVE,
        Limit(0.01, 1e-5, "rdp"),
    ).close()
    reply = work(site(tmp_path, limit=Limit(100.0, 1e-5, "rdp")))
    assert reply.refusal
    assert reply.update is None
    assert spent(tmp_path) == {}


def test_a_node_works_for_more_clients_than_it_keeps_ledgers_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.client.debits.OPEN_LEDGERS", 1)
    node = ClientRunner(site(tmp_path))
    for round in range(2):
        for client in (0, 1):
            assert (
                node.work(replace(PRIVATE, client=client, round=round), start()).update is not None
            )
    node.close()
    assert spent(tmp_path, 0) == spent(tmp_path, 1) == {EVENT: 4}
