"""The ledger holds what was spent, whatever happens to its process, its neighbours or its disk, and
stops in time.
"""

import sqlite3
import threading

import dp_accounting as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy import BudgetRefusal, FixedSize, Ledger, Limit, accountant, affordable
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import ADD_REMOVE, add
from dpfl.privacy.ledger.database import UNIQUE
from dpfl.privacy.ledger.ledger import LedgerAccount
from tests.conftest import PATIENCE
from tests.privacy.exact import poisson
from tests.privacy.ledger.files import rows
from tests.privacy.workers import (
    EVENT,
    LIMIT,
    open_ledger,
)

DELTA = 1e-5
OTHER = poisson(0.1, 3.0)
ROOM = affordable({}, EVENT, LIMIT.epsilon, LIMIT.delta, accountant(LIMIT.accountant))


# What is debited


def test_a_new_ledger_has_spent_nothing_and_keeps_its_unit_and_limit(path):
    ledger = open_ledger(path, owner="hospital", unit="client", limit=LIMIT)
    assert ledger.spending() == {}
    assert ledger.epsilon(DELTA) == 0
    assert ledger.unit == "client"
    assert ledger.limit == LIMIT
    assert ledger.account == LedgerAccount("hospital", "client", ADD_REMOVE)
    assert ledger.plans() == {}


def test_a_debit_is_counted_and_still_there_when_the_ledger_is_opened_again(path, ledger):
    ledger.debit("run", "a", EVENT, 10)
    ledger.debit("run", "b", EVENT, 5)
    ledger.debit("run", "c", OTHER, 2)
    expected = {EVENT: 15, OTHER: 2}
    assert ledger.spending() == expected
    ledger.close()
    again = Ledger.read(path)
    assert again.spending() == expected
    assert again.limit == LIMIT
    for name in ("pld", "rdp"):
        assert again.epsilon(DELTA, name) == accountant(name).epsilon(expected, DELTA)


def test_a_debit_is_seen_by_another_connection_as_soon_as_it_returns(path, ledger):
    ledger.debit("run", "a", EVENT, 10)
    assert Ledger.read(path).spending() == {EVENT: 10}


def test_a_thousand_releases_are_one_row(path):
    ledger = open_ledger(path)
    ledger.debit("run", "a", EVENT, 1000)
    assert [row[4] for row in rows(path)] == [1000]
    assert ledger.spending() == {EVENT: 1000}
    assert len(rows(path, "events")) == 1


def test_the_same_event_is_written_once_however_often_it_is_debited(path, ledger):
    for number in range(5):
        ledger.debit("run", str(number), EVENT, 1)
    assert len(rows(path, "events")) == 1
    assert len(rows(path)) == 5


def test_a_ledger_that_is_not_there_cannot_be_read(path):
    with pytest.raises(DpflError, match="There is no ledger"):
        Ledger.read(path)
    assert not path.exists()


@given(
    st.lists(
        st.tuples(st.sampled_from([EVENT, OTHER, dp.GaussianDpEvent(20.0)]), st.integers(1, 40)),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=12, deadline=None)
def test_whatever_is_asked_for_the_limit_holds_and_the_rows_are_what_was_granted(
    tmp_path_factory, requests
):
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    ledger, granted = open_ledger(path, limit=LIMIT), {}
    for number, (event, count) in enumerate(requests):
        fits = accountant("rdp").epsilon(add(granted, event, count), LIMIT.delta) <= LIMIT.epsilon
        try:
            ledger.debit("run", str(number), event, count)
            assert fits
            granted = add(granted, event, count)
        except BudgetRefusal:
            assert not fits
    assert ledger.spending() == granted
    assert ledger.epsilon(LIMIT.delta, "rdp") <= LIMIT.epsilon
    ledger.close()


def test_a_debit_is_not_there_before_its_flush_and_there_after_it_in_any_thread(path, ledger):
    flush = ledger.begin("run", "a", EVENT, 10)
    assert Ledger.read(path).spending() == {}
    thread = threading.Thread(target=flush)
    thread.start()
    thread.join(PATIENCE)
    assert Ledger.read(path).spending() == {EVENT: 10}


def test_what_another_connection_wrote_in_between_counts_at_the_next_debit(path, ledger):
    """Fault: what was spent remembered from before, while another program spends the rest."""
    ledger.debit("run", "a", EVENT, ROOM - 5)
    other = Ledger.existing(path)
    other.debit("another run", "b", EVENT, 3)
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "c", EVENT, 3)
    ledger.debit("run", "d", EVENT, 1)
    with pytest.raises(BudgetRefusal):
        other.debit("another run", "e", EVENT, 2)
    other.debit("another run", "f", EVENT, 1)
    assert ledger.spending() == other.spending() == {EVENT: ROOM}


def test_debits_that_another_program_slips_in_under_an_old_number_are_seen_at_the_next_debit(
    path, ledger
):
    ledger.debit("run", "a", EVENT, 1)
    connection = sqlite3.connect(path)
    columns = "id, run, release, event, count, at, link, seal"
    connection.execute(
        f"INSERT INTO debits ({columns}) VALUES (-7, 'run', 'b', 1, ?, 0, 1, '')", (ROOM - 1,)
    )
    connection.commit()
    connection.close()
    with pytest.raises(DpflError, match="of debits is missing, or was added"):
        ledger.debit("run", "c", EVENT, 1)


def test_a_limit_that_the_owner_sets_in_between_holds_at_the_next_debit(path, ledger):
    ledger.debit("run", "a", EVENT, 1)
    least = LIMIT.remaining({}, EVENT) // 2
    other = Ledger.existing(path)
    other.set_limit(
        Limit(accountant("rdp").epsilon({EVENT: least}, LIMIT.delta), LIMIT.delta, "rdp")
    )
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "b", EVENT, least)
    ledger.set_limit(LIMIT)
    ledger.debit("run", "c", EVENT, least)


def test_a_debit_that_failed_is_not_remembered_as_spent(path, ledger, monkeypatch):
    ledger.debit("run", "a", EVENT, 1)
    flush = ledger.begin("run", "b", EVENT, ROOM - 1)
    with monkeypatch.context() as patched:
        patched.setattr(ledger, "_connection", Broken(ledger._connection))
        with pytest.raises(DpflError, match="nothing was released"):
            flush()
    ledger.debit("run", "c", EVENT, ROOM - 1)
    assert ledger.spending() == {EVENT: ROOM}


class Broken:
    """A connection whose disk is full."""

    def __init__(self, connection):
        self.connection = connection
        self.in_transaction = True

    def execute(self, statement):
        if statement == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return self.connection.execute(statement)


# Limits


def test_a_debit_past_the_limit_is_refused_and_changes_nothing(path, ledger):
    ledger.debit("run", "a", EVENT, ROOM - 3)
    before = {table: rows(path, table) for table in UNIQUE}
    with pytest.raises(
        BudgetRefusal, match=r"budget of client \(epsilon 3\) has no room for 4 more"
    ):
        ledger.debit("another run", "b", EVENT, 4)
    with pytest.raises(BudgetRefusal):
        ledger.debit("another run", "c", OTHER, 500)
    assert {table: rows(path, table) for table in UNIQUE} == before


def test_the_last_affordable_release_is_granted_and_the_next_is_not(ledger):
    ledger.debit("run", "a", EVENT, ROOM - 2)
    ledger.debit("run", "b", EVENT, 1)
    assert ledger.remaining(EVENT) == 1
    ledger.debit("run", "c", EVENT, 1)
    assert ledger.remaining(EVENT) == 0
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "d", EVENT, 1)
    assert ledger.spending() == {EVENT: ROOM}
    assert (
        ledger.epsilon(DELTA, "rdp")
        <= LIMIT.epsilon
        < accountant("rdp").epsilon({EVENT: ROOM + 1}, DELTA)
    )


def test_the_tight_accountant_stops_at_716_releases_for_epsilon_2(path):
    event = poisson(0.015, 1.1)
    ledger = open_ledger(path, limit=Limit(2.0, DELTA))
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "all", event, 717)
    ledger.debit("run", "a", event, 700, horizon=2000)
    assert ledger.remaining(event) == 16
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "b", event, 17, horizon=1)
    ledger.debit("run", "c", event, 16)
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "d", event, 1)
    assert ledger.epsilon(DELTA) <= 2.0


def test_a_release_where_renyi_says_no_and_the_tight_accountant_yes_is_granted(path):
    spent = {poisson(0.015, 1.1): 600, OTHER: 1}
    assert accountant("rdp").epsilon(spent, DELTA) > 2.0 >= accountant("pld").epsilon(spent, DELTA)
    ledger = open_ledger(path, limit=Limit(2.0, DELTA))
    ledger.debit("run", "a", OTHER, 1)
    ledger.debit("run", "b", poisson(0.015, 1.1), 600)
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "c", poisson(0.015, 1.1), 200)
    assert ledger.spending() == spent


def test_a_limit_by_the_classic_accountant_is_not_stretched_by_a_better_one(path):
    event = poisson(0.015, 1.1)
    ledger = open_ledger(path, limit=Limit(2.0, DELTA, "rdp-classic"))
    ledger.debit("run", "other", dp.GaussianDpEvent(1000.0), 1)
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "a", event, 320)
    ledger.debit("run", "b", event, 313)
    assert ledger.epsilon(DELTA, "rdp-classic") <= 2.0


@pytest.mark.parametrize(("own", "run"), [(1.0, 3.0), (3.0, 1.0), (None, 1.0), (1.0, None)])
def test_the_owners_limit_and_the_runs_limit_both_hold(path, own, run):
    least = affordable({}, EVENT, 1.0, DELTA, accountant("rdp"))
    ledger = open_ledger(path, limit=Limit(own, DELTA, "rdp") if own else None)
    asked = Limit(run, DELTA, "rdp") if run else None
    assert ledger.remaining(EVENT, asked) == least
    with pytest.raises(BudgetRefusal, match=r"epsilon 1\)"):
        ledger.debit("run", "a", EVENT, least + 1, asked)
    ledger.debit("run", "b", EVENT, least, asked)
    assert ledger.remaining(EVENT, asked) == 0


def test_a_runs_limit_counts_what_earlier_runs_spent(path):
    ledger = open_ledger(path)
    ledger.debit("first", "a", EVENT, ROOM)
    with pytest.raises(BudgetRefusal):
        ledger.debit("second", "b", EVENT, 1, LIMIT)


def test_without_any_limit_everything_is_counted_and_nothing_refused(path):
    ledger = open_ledger(path)
    assert ledger.limit is None
    assert ledger.remaining(EVENT) >= MAX_RELEASES
    assert ledger.remaining(EVENT, horizon=12) == 12
    ledger.debit("run", "a", EVENT, 10**6)
    ledger.debit("run", "b", dp.NonPrivateDpEvent(), 1)
    assert ledger.epsilon(DELTA) == float("inf")


def test_a_horizon_below_the_count_does_not_refuse_what_fits(ledger):
    ledger.debit("run", "a", EVENT, ROOM, horizon=1)
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "b", EVENT, 1, horizon=1)
    assert ledger.spending() == {EVENT: ROOM}


def test_what_remains_is_cut_at_the_horizon(ledger):
    assert ledger.remaining(EVENT) == ROOM
    assert ledger.remaining(EVENT, horizon=5) == 5
    assert ledger.remaining(EVENT, horizon=ROOM + 100) == ROOM


def test_the_owner_can_set_another_limit_and_the_old_one_stays_on_record(path, ledger):
    ledger.debit("run", "a", EVENT, ROOM)
    ledger.set_limit(Limit(4.0, DELTA, "rdp"))
    assert ledger.limit == Limit(4.0, DELTA, "rdp")
    ledger.debit("run", "b", EVENT, 1)
    ledger.set_limit(Limit(0.5, DELTA, "rdp"))
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "c", EVENT, 1)
    assert [row[1] for row in rows(path, "limits")] == [3.0, 4.0, 0.5]
    assert Ledger.read(path).limit == Limit(0.5, DELTA, "rdp")


def test_a_run_cannot_widen_the_owners_limit_by_opening_the_ledger_with_its_own(path, ledger):
    ledger.debit("run", "a", EVENT, ROOM)
    ledger.close()
    again = open_ledger(path, limit=Limit(100.0, DELTA, "rdp"))
    assert again.limit == LIMIT
    with pytest.raises(BudgetRefusal):
        again.debit("run", "b", EVENT, 1, Limit(100.0, DELTA, "rdp"))


def test_a_release_without_noise_is_refused_by_any_limit(ledger):
    with pytest.raises(BudgetRefusal):
        ledger.debit("run", "a", dp.NonPrivateDpEvent(), 1)
    assert ledger.spending() == {}


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_that_is_not_positive_leaves_no_trace(path, ledger, count):
    ledger.debit("run", "a", EVENT, 10)
    before = {table: rows(path, table) for table in UNIQUE}
    with pytest.raises(DpflError):
        ledger.debit("another run", "b", OTHER, count)
    assert {table: rows(path, table) for table in UNIQUE} == before


def test_fixed_size_and_poisson_releases_cannot_share_a_limited_ledger(ledger):
    ledger.debit("run", "a", EVENT, 1)
    with pytest.raises(DpflError, match="different neighbours"):
        ledger.debit("run", "b", FixedSize(5).event(4.0, 100), 1)
    assert ledger.spending() == {EVENT: 1}


@pytest.mark.parametrize(
    "limit", [(0, DELTA, "pld"), (1.0, 0, "pld"), (1.0, DELTA, "gdp-clt"), (1.0, DELTA, "guess")]
)
def test_an_impossible_limit_is_refused(limit):
    with pytest.raises(DpflError):
        Limit(*limit)


# Names and runs


def test_the_same_release_again_is_not_counted_twice(path, ledger):
    ledger.debit("run", "a", EVENT, ROOM)
    ledger.debit("run", "a", EVENT, ROOM)
    assert ledger.spending() == {EVENT: ROOM}
    assert len(rows(path)) == 1


@pytest.mark.parametrize(("event", "count"), [(OTHER, 10), (EVENT, 11), (EVENT, 9)])
def test_another_release_under_the_same_name_is_refused(ledger, event, count):
    ledger.debit("run", "a", EVENT, 10)
    with pytest.raises(BudgetRefusal, match="same name"):
        ledger.debit("run", "a", event, count)
    assert ledger.spending() == {EVENT: 10}


def test_each_run_has_an_epoch_of_its_own_that_it_keeps(path, ledger):
    assert [ledger.epoch("one"), ledger.epoch("two"), ledger.epoch("one")] == [0, 1, 0]
    ledger.debit("three", "a", EVENT, 1)
    ledger.debit("one", "b", EVENT, 1)
    runs = ("one", "two", "three", "four")
    epochs = [ledger.epoch(run) for run in runs]
    assert epochs[:2] == [0, 1]
    assert sorted(set(epochs)) == epochs
    ledger.close()
    again = Ledger.existing(path)
    assert [again.epoch(run) for run in runs] == epochs
    assert again.epoch("five") > max(epochs)
