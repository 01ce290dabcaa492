"""Limits on a part of what is spent: a run's, a year's. And a chain that is known to have come this
far.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpfl.privacy import BudgetRefusal, Ledger, Limit, accountant, affordable
from dpfl.privacy.ledger.chain import ChainTail
from dpfl.privacy.ledger.limit import DAY, SubLimit
from tests.privacy.exact import poisson
from tests.privacy.workers import EVENT, LIMIT, open_ledger

ROOM = affordable({}, EVENT, LIMIT.epsilon, LIMIT.delta, accountant(LIMIT.accountant))
WIDE = Limit(LIMIT.epsilon * 3, LIMIT.delta, LIMIT.accountant)
YEAR = SubLimit(LIMIT, days=365)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = open_ledger(tmp_path / "client.sqlite", limit=WIDE)
    yield opened
    opened.close()


def debit(ledger: Ledger, run: str, name: str, count: int, *shares: SubLimit) -> None:
    ledger.begin(run, name, EVENT, count, shares=shares)()


def test_a_run_has_a_limit_of_its_own_beside_that_in_all(ledger: Ledger) -> None:
    debit(ledger, "one", "a", ROOM, SubLimit(LIMIT, run="one"))
    debit(ledger, "two", "b", ROOM, SubLimit(LIMIT, run="two"))
    before = ledger.debits()
    with pytest.raises(BudgetRefusal, match="for the run two"):
        debit(ledger, "two", "c", 1, SubLimit(LIMIT, run="two"))
    assert ledger.debits() == before
    assert ledger.spending_within(SubLimit(LIMIT, run="one")) == {EVENT: ROOM}
    assert ledger.spending_within(SubLimit(LIMIT), besides="one") == {EVENT: ROOM}


def test_other_events_of_the_same_run_count_in_its_share(ledger: Ledger) -> None:
    debit(ledger, "one", "a", ROOM, SubLimit(LIMIT, run="one"))
    with pytest.raises(BudgetRefusal):
        ledger.begin("one", "b", poisson(0.1, 3.0), ROOM, shares=(SubLimit(LIMIT, run="one"),))()


def test_a_clock_that_is_set_back_dates_nothing_before_what_was_spent_last(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    debit(ledger, "one", "a", 1, YEAR)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 400 * DAY)
    debit(ledger, "two", "b", ROOM - 1, YEAR)
    monkeypatch.setattr(time, "time", lambda: now)
    assert ledger.spending_within(YEAR) == {EVENT: ROOM}
    with pytest.raises(BudgetRefusal, match="for 365 days"):
        debit(ledger, "two", "c", 1, YEAR)


def test_a_year_forgets_what_is_older_and_counts_what_a_clock_dated_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 366 * DAY)
    debit(ledger, "old", "a", ROOM, YEAR)
    monkeypatch.setattr(time, "time", lambda: now + 2 * DAY)
    debit(ledger, "new", "b", ROOM, YEAR)
    monkeypatch.setattr(time, "time", lambda: now)
    assert ledger.spending_within(YEAR) == {EVENT: ROOM}
    with pytest.raises(BudgetRefusal, match="for 365 days"):
        debit(ledger, "new", "c", 1, YEAR)


def test_the_same_release_again_is_asked_of_no_share(ledger: Ledger) -> None:
    debit(ledger, "one", "a", ROOM, YEAR)
    debit(ledger, "one", "a", ROOM, YEAR)
    assert ledger.spending() == {EVENT: ROOM}


def test_a_ledger_from_before_does_not_hold_what_came_after(tmp_path: Path, ledger: Ledger) -> None:
    debit(ledger, "one", "a", 1)
    ledger.close()
    shutil.copyfile(tmp_path / "client.sqlite", tmp_path / "copy.sqlite")
    opened = Ledger.existing(tmp_path / "client.sqlite")
    debit(opened, "one", "b", 1)
    tail = opened.tail
    assert opened.contains(tail)
    assert opened.contains(ChainTail())
    assert not opened.contains(ChainTail(tail.links, "0" * 64))
    debit(opened, "one", "c", 1)
    assert opened.contains(tail)
    opened.close()
    old = Ledger.existing(tmp_path / "copy.sqlite")
    assert not old.contains(tail)
    debit(old, "one", "b", 1)
    assert not old.contains(tail), "the same release at another time"
    old.close()
