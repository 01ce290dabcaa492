"""What proven epsilons are for: the debits of a run, or its plan if that is more."""

from __future__ import annotations

from pathlib import Path

from dpfl.privacy.ledger.ledger import Ledger
from dpfl.privacy.ledger.plans import events_until, proven_events
from tests.privacy.workers import EVENT


def test_a_run_counts_as_its_plan_once_it_has_debited_anything(ledger: Ledger, path: Path) -> None:
    ledger.plan("one", EVENT, 9)
    assert proven_events(ledger) == {}
    ledger.debit("one", "first", EVENT, 2)
    ledger.debit("two", "second", EVENT, 3)
    assert proven_events(ledger) == {EVENT: 9 + 3}
    assert events_until(ledger) == {EVENT: 5}


def test_an_earlier_link_has_what_was_debited_until_then(ledger: Ledger) -> None:
    ledger.debit("one", "first", EVENT, 2)
    until = ledger.last_link("one")
    ledger.debit("one", "second", EVENT, 3)
    assert events_until(ledger, until) == {EVENT: 2}
    assert proven_events(ledger, until) == {EVENT: 2}
