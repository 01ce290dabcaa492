"""Ledgers: append-only, hash-chained records of every private release."""

from typing import TYPE_CHECKING

from dpfl.deprecation import deprecated_names

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__,
        {
            "Account": "dpfl.privacy.ledger.account.LedgerAccount",
            "END": "dpfl.privacy.ledger.account.LAST_LINK",
            "Ledger": "dpfl.privacy.Ledger",
            "Limit": "dpfl.privacy.Limit",
            "Refused": "dpfl.privacy.BudgetRefusal",
            "refuse_kinds": "dpfl.privacy.ledger.account.check_same_kind",
        },
    )
