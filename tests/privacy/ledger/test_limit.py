"""Limits of an owner: a day is a day, and what is allowed is compared with the right number,
exactly at the border.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.privacy import BudgetRefusal, Ledger, Limit
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.ledger.limit import SubLimit
from tests.privacy.workers import EVENT, open_ledger

LIMIT = Limit(3.0, 1e-5, "rdp")


def test_a_day_has_86400_seconds():
    """Fault: the tests of shares used the constant that they check."""
    assert SubLimit(LIMIT, days=1).since(1_000_000.0) == 1_000_000.0 - 86_400
    assert SubLimit(LIMIT, days=7).since(1_000_000.0) == 1_000_000.0 - 604_800
    assert SubLimit(LIMIT).since(1_000_000.0) == -float("inf")


@pytest.mark.parametrize(
    ("seconds", "counted"), [(30 * 86_400 - 60, True), (30 * 86_400 + 60, False), (-3600, True)]
)
def test_what_a_share_of_thirty_days_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, counted: bool
):
    """A minute more or less than thirty days ago, by a clock that the test sets; and an hour
    ahead.
    """
    now = 1_800_000_000.0
    month = SubLimit(LIMIT, days=30)
    with closing(open_ledger(tmp_path / "owner.sqlite")) as ledger:
        monkeypatch.setattr(time, "time", lambda: now - seconds)
        ledger.debit("run", "a", EVENT, 5)
        monkeypatch.setattr(time, "time", lambda: now)
        assert ledger.spending_within(month) == ({EVENT: 5} if counted else {})


def test_what_is_allowed_ends_where_epsilon_does():
    """The number of releases is the largest whose epsilon is within the limit, by an accountant
    that is asked anew.
    """
    from dpfl.privacy import accountant

    for name in ("pld", "rdp"):
        limit, by = Limit(2.0, 1e-5, name), accountant(name)
        most = limit.remaining({}, EVENT)
        assert by.epsilon({EVENT: most}, 1e-5) <= 2.0 < by.epsilon({EVENT: most + 1}, 1e-5)
        assert limit.covers({EVENT: most})
        assert not limit.covers({EVENT: most + 1})
        assert limit.allows({}, EVENT, most)
        assert not limit.allows({}, EVENT, most + 1)
        assert limit.allows({EVENT: most - 1}, EVENT, 1)
        assert not limit.allows({EVENT: most}, EVENT, 1)


def test_events_of_another_kind_count_beside():
    limit, other = Limit(2.0, 1e-5, "rdp"), gaussian(20.0)
    alone = limit.remaining({}, EVENT)
    beside = limit.remaining({other: 4}, EVENT)
    assert 0 < beside < alone
    assert limit.allows({other: 4}, EVENT, beside)
    assert not limit.allows({other: 4}, EVENT, beside + 1)


def test_a_limit_at_exactly_what_is_spent_covers_it():
    from dpfl.privacy import accountant

    spent = {EVENT: 10}
    for name in ("rdp", "rdp-classic"):
        epsilon = accountant(name).epsilon(spent, 1e-5)
        assert Limit(epsilon, 1e-5, name).covers(spent)
        assert not Limit(epsilon * (1 - 1e-9), 1e-5, name).covers(spent)


def test_a_smaller_delta_allows_less():
    assert Limit(2.0, 1e-7, "rdp").remaining({}, EVENT) < Limit(2.0, 1e-4, "rdp").remaining(
        {}, EVENT
    )


@pytest.mark.parametrize(
    ("epsilon", "delta", "name"),
    [
        (0.0, 1e-5, "rdp"),
        (-1.0, 1e-5, "rdp"),
        (1.0, 0.0, "rdp"),
        (1.0, 1.0, "rdp"),
        (1.0, 1e-5, "gdp-clt"),
        (float("nan"), 1e-5, "rdp"),
        (float("inf"), 1e-5, "rdp"),
        (1.0, float("nan"), "pld"),
    ],
)
def test_a_limit_that_limits_nothing_or_is_not_proven_is_refused(
    epsilon: float, delta: float, name: str
):
    with pytest.raises(DpflError):
        Limit(epsilon, delta, name)


def test_the_ledger_refuses_the_first_release_beyond_its_limit(tmp_path: Path):
    limit = Limit(2.0, 1e-5, "rdp")
    most = limit.remaining({}, EVENT)
    with closing(open_ledger(tmp_path / "owner.sqlite", limit=limit)) as ledger:
        ledger.debit("run", "a", EVENT, most)
        with pytest.raises(BudgetRefusal):
            ledger.debit("run", "b", EVENT, 1)
        assert ledger.spending() == {EVENT: most}
        assert ledger.epsilon(1e-5, "rdp") <= 2.0
    with closing(Ledger.read(tmp_path / "owner.sqlite")) as again:
        assert again.limit == limit
