"""Ways in which a ledger could be made to say less than was released."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from dpfl.errors import DpflError
from dpfl.privacy import BudgetRefusal, Keyed, Ledger, Limit, Poisson, accountant
from dpfl.privacy.accounting.events import decode
from dpfl.privacy.statement import figure, rounded_up
from tests.privacy.workers import open_ledger

EVENT = Poisson(0.01).event(1.0, 1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "owner.sqlite"


def test_a_count_from_numpy_is_counted_like_any_other(path):
    ledger = open_ledger(path)
    ledger.debit("run", "a", EVENT, np.int64(50))
    assert ledger.spending() == {EVENT: 50}


@pytest.mark.parametrize("count", [0, -1, 0.9, 1.0, "2"])
def test_a_count_that_is_no_positive_whole_number_is_refused(path, count):
    ledger = open_ledger(path)
    with pytest.raises((DpflError, TypeError)):
        ledger.debit("run", "a", EVENT, count)
    assert ledger.spending() == {}


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_truncated_ledger_is_damaged_and_not_new(path, size):
    ledger = open_ledger(path)
    ledger.debit("run", "a", EVENT, 5)
    ledger.close()
    path.write_bytes(path.read_bytes()[:size])
    for way in (open_ledger, Ledger.existing, Ledger.read):
        with pytest.raises(DpflError, match="damaged"):
            way(path)


@pytest.mark.parametrize(
    "statement",
    [
        "REPLACE INTO debits SELECT id, run, release, event, 1, at, link, seal FROM debits",
        "REPLACE INTO debits (run, release, event, count, at, link, seal) SELECT run, release, "
        "event, 1, at, 9, '' FROM debits",
        "REPLACE INTO events SELECT id, "
        """'{"mechanism":"gaussian","noise_multiplier":1000.0}', link, seal FROM events""",
        "REPLACE INTO limits SELECT id, 100, delta, accountant, at, link, seal FROM limits",
        "INSERT INTO debits (run, release, event, count, at, link, seal) VALUES ('run', 'b', 1, "
        "x'05', 0, 9, '')",
    ],
)
def test_rows_cannot_be_replaced_nor_hold_something_else_than_numbers(path, statement):
    ledger = open_ledger(path, limit=Limit(5.0, 1e-5))
    ledger.debit("run", "a", EVENT, 50)
    ledger.close()
    with sqlite3.connect(path) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    again = Ledger.read(path)
    assert again.spending() == {EVENT: 50}
    assert again.limit == Limit(5.0, 1e-5)


def test_a_release_of_another_run_is_not_free(path):
    ledger = open_ledger(path)
    ledger.debit("one", "a", EVENT, 5)
    with pytest.raises(BudgetRefusal):
        ledger.debit("two", "a", EVENT, 5)


def test_epochs_count_the_runs_before(path):
    ledger = open_ledger(path)
    assert [ledger.epoch(run) for run in ("a", "b", "a", "c")] == [0, 1, 0, 2]
    ledger.debit("c", "x", EVENT, 1)
    assert ledger.epoch("d") == 3


def test_what_other_runs_spent_is_told_apart(path):
    ledger = open_ledger(path)
    ledger.debit("one", "a", EVENT, 5)
    ledger.debit("two", "b", EVENT, 3)
    assert ledger.spending(besides="two") == {EVENT: 5}
    assert (
        ledger.remaining(EVENT, Limit(3.0, 1e-5, "rdp"), run="two")
        == ledger.remaining(EVENT, Limit(3.0, 1e-5, "rdp")) + 3
    )


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "3",
        "null",
        '{"mechanism":"gaussian","noise_multiplier":-1.0}',
        '{"mechanism":"gaussian","noise_multiplier":NaN}',
        '{"mechanism":"gaussian","noise_multiplier":Infinity}',
        '{"mechanism":"gaussian","noise_multiplier":true}',
        '{"of":{"mechanism":"gaussian","noise_multiplier":1.0},"rate":5.0,"sampling":"poisson"}',
        '{"of":{"mechanism":"none"},"rate":0.5,"sampling":"poisson"}',
        '{"of":{"mechanism":"gaussian","noise_multiplier":1.0},"population":5,"sampling":"fixed-size","size":9}',
        '{"extra":1,"mechanism":"none"}',
    ],
)
def test_events_that_nobody_wrote_are_refused(line):
    with pytest.raises(DpflError):
        decode(line)


def test_over_many_quiet_steps_pld_is_never_above_rdp():
    spent = {Poisson(0.001).event(50.0, 1): 1_000_000}
    assert accountant("pld").epsilon(spent, 1e-5) <= accountant("rdp").epsilon(spent, 1e-5)


def test_figures_are_rounded_up():
    assert rounded_up(2.00004999) == 2.0001
    assert rounded_up(2.0) == 2.0
    assert figure(1.2345671) == 1.234568
    assert figure(float("nan")) == figure(float("inf")) == "unbounded"


def test_the_scope_of_noise_is_part_of_its_key():
    streams = [
        Keyed(0, scope=scope).generator(purpose).random()
        for scope, purpose in (("a", "b/c"), ("a/b", "c"), ("", "c"))
    ]
    assert len(set(streams)) == 3
