"""What a ledger says of its debits."""

from __future__ import annotations

from dpfl.privacy.ledger.ledger import Ledger
from tests.privacy.workers import EVENT


def test_spending_is_summed_over_all_runs_or_without_one(ledger: Ledger) -> None:
    ledger.debit("one", "first", EVENT, 2)
    ledger.debit("two", "second", EVENT, 3)
    assert ledger.spending() == {EVENT: 5}
    assert ledger.spending(besides="one") == {EVENT: 3}
    assert ledger.spending_with_others("one") == ({EVENT: 5}, {EVENT: 3})
    assert ledger.spending_until(ledger.last_link("one")) == {EVENT: 2}


def test_a_release_is_known_by_its_name_and_a_row_by_its_seal(ledger: Ledger) -> None:
    before = ledger.tail
    ledger.debit("one", "first", EVENT, 2)
    assert ledger.has_release("first")
    assert not ledger.has_release("second")
    assert ledger.contains(before)
    assert ledger.includes(ledger.tail)
    assert [row[1] for row in ledger.debits()] == ["first"]


def test_what_remains_is_beside_what_others_spent(ledger: Ledger) -> None:
    room = ledger.remaining(EVENT)
    ledger.debit("one", "first", EVENT, 2)
    assert ledger.remaining(EVENT) == room - 2
    assert ledger.remaining(EVENT, run="one") == room
    assert ledger.remaining(EVENT, run="one", before={EVENT: 1}) == room - 1
