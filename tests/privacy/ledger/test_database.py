"""The file of a ledger: nothing in it can be changed, and damage is noticed before a read."""

import multiprocessing
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from dpfl.errors import DpflError
from dpfl.privacy import Ledger, accountant, affordable
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.ledger.chain import append_row, check_chain
from dpfl.privacy.ledger.database import UNIQUE
from tests.conftest import PATIENCE
from tests.privacy.exact import poisson
from tests.privacy.ledger.files import fill, rows, start
from tests.privacy.workers import (
    EVENT,
    LIMIT,
    debit_until_the_disk_is_full,
    open_ledger,
)

DELTA = 1e-5
OTHER = poisson(0.1, 3.0)
ROOM = affordable({}, EVENT, LIMIT.epsilon, LIMIT.delta, accountant(LIMIT.accountant))


@pytest.mark.parametrize("table", UNIQUE)
@pytest.mark.parametrize("change", ["UPDATE {} SET rowid = rowid + 1", "DELETE FROM {}"])
def test_nothing_in_a_ledger_can_be_changed_or_deleted(path, ledger, table, change):
    ledger.plan("run", EVENT, 10)
    ledger.debit("run", "a", EVENT, 10)
    ledger.close()
    with closing(Ledger.open(path, "owner", "sample", ADD_REMOVE, data="of the owner")) as bound:
        bound.debit("run", "b", EVENT, 10)
    before = rows(path, table)
    assert before
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(change.format(table))
    connection.close()
    assert rows(path, table) == before


def test_a_count_cannot_be_lowered_by_another_program(path, ledger):
    ledger.debit("run", "a", EVENT, 10)
    connection = sqlite3.connect(path)
    for change in (
        "UPDATE debits SET count = 1",
        "UPDATE OR REPLACE debits SET count = 1",
        "DELETE FROM debits WHERE id = 1",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(change)
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute("INSERT INTO debits VALUES (NULL, 'run', 'b', 1, -10, 0, 9, '')")
    connection.close()
    assert ledger.spending() == {EVENT: 10}


def test_a_full_disk_refuses_the_debit_and_forgets_it(path):
    fill(path, 50)
    context = multiprocessing.get_context("fork")
    process, receiver = start(context, debit_until_the_disk_is_full, path, 150_000)
    process.join(PATIENCE)
    won, errors, seen = receiver.recv()
    assert won > 0
    assert len(errors) == 3
    assert all("cannot be written" in error and "nothing was released" in error for error in errors)
    assert seen == 50 + won
    ledger = Ledger.existing(path)
    assert ledger.spending() == {EVENT: 50 + won}
    ledger.debit("run", "after the disk was mended", EVENT, 1)
    assert ledger.spending() == {EVENT: 51 + won}


@pytest.mark.parametrize("size", [64, 100, 5000, 50_000])
def test_random_bytes_are_not_a_ledger(path, size):
    path.write_bytes(np.random.default_rng(size).bytes(size))
    with pytest.raises(DpflError, match="is damaged"):
        open_ledger(path)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_a_ledger_cut_short_is_damaged(path, keep):
    fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(DpflError, match="Restore it from a copy"):
        open_ledger(path)


def test_a_ledger_of_its_first_page_only_is_damaged(path):
    fill(path)
    path.write_bytes(path.read_bytes()[:4096])
    with pytest.raises(DpflError, match="is damaged"):
        open_ledger(path)


def test_a_page_overwritten_anywhere_is_noticed_before_anything_is_read(path):
    fill(path)
    whole = path.read_bytes()
    pages, noise = len(whole) // 4096, np.random.default_rng(0)
    assert pages >= 12
    for page in range(pages):
        for content in (noise.bytes(4096), bytes(4096)):
            path.write_bytes(whole[: page * 4096] + content + whole[(page + 1) * 4096 :])
            with pytest.raises(DpflError, match="is damaged"):
                open_ledger(path)


def test_another_database_is_not_a_ledger(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE debits (amount REAL)")
    connection.commit()
    connection.close()
    with pytest.raises(DpflError, match="not a ledger"):
        open_ledger(path)


def test_an_event_that_cannot_be_read_is_never_left_out(path, ledger):
    ledger.debit("run", "a", EVENT, 1)
    connection = sqlite3.connect(path)
    tail = append_row(connection, check_chain(connection), "events", '{"mechanism":"laplace"}')
    append_row(connection, tail, "debits", "run", "b", 2, 1, 0.0)
    connection.commit()
    connection.close()
    for use in (
        ledger.spending,
        lambda: ledger.epsilon(DELTA),
        lambda: ledger.debit("run", "c", EVENT, 1),
    ):
        with pytest.raises(DpflError, match="cannot be read"):
            use()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for place in (tmp_path / "file" / "client.sqlite", tmp_path):
        with pytest.raises(DpflError, match="cannot be opened"):
            open_ledger(place)


def test_folders_on_the_way_are_made(tmp_path):
    open_ledger(tmp_path / "a" / "b" / "client.sqlite").close()
    assert (tmp_path / "a" / "b" / "client.sqlite").exists()


def test_a_closed_ledger_debits_nothing(path, ledger):
    ledger.close()
    with pytest.raises(DpflError):
        ledger.debit("run", "a", EVENT, 1)
    assert Ledger.read(path).spending() == {}
