"""Whose a ledger is, and the mark of its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE
from dpfl.privacy.ledger.account import LedgerAccount, check_same_kind, data_mark, limit_row
from dpfl.privacy.ledger.limit import Limit

ACCOUNT = LedgerAccount("a", "sample", ADD_REMOVE)


def test_the_mark_of_data_depends_on_the_salt_and_is_empty_without_data() -> None:
    assert data_mark("00", "digest") == data_mark("00", "digest")
    assert data_mark("00", "digest") != data_mark("01", "digest")
    assert data_mark("00", "digest") != data_mark("00", "other")
    assert data_mark("00", "") == ""


def test_epsilons_of_other_units_or_neighbours_are_not_added_up() -> None:
    check_same_kind(Path("x"), ACCOUNT, LedgerAccount("b", "sample", ADD_REMOVE))
    for unit, neighbours in (("person", ADD_REMOVE), ("sample", REPLACE)):
        with pytest.raises(DpflError, match="cannot be added up"):
            check_same_kind(Path("x"), ACCOUNT, LedgerAccount("a", unit, neighbours))


def test_a_limit_is_a_row_of_numbers() -> None:
    assert limit_row(Limit(2, 1e-5, "rdp")) == (2.0, 1e-5, "rdp")
