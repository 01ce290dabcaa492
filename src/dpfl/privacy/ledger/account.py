"""Whose a ledger is, and for what: its account, its limits and plans, and the mark of the data that
it counts.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import Event, decode
from dpfl.privacy.ledger.limit import Limit

LAST_LINK = 1 << 62
"""A link of the chain beyond any that a ledger has."""


@dataclass(frozen=True)
class LedgerAccount:
    """Whose ledger it is, and what one of its records is: a sample or a client, added and removed
    or replaced.
    """

    owner: str
    unit: str
    neighbours: str


def limit_row(limit: Limit) -> tuple[float, float, str]:
    """As SQLite gives it back, so that its seal holds."""
    return float(limit.epsilon), float(limit.delta), limit.accountant


def limits_since_first_debit(
    connection: sqlite3.Connection, until: int = LAST_LINK
) -> list[Limit | None]:
    """The limit at the first debit, None where there was none, and each that was set after it, up
    to a link of the chain.
    """
    (first,) = connection.execute(
        "SELECT COALESCE(MIN(link), ?) FROM debits", (LAST_LINK,)
    ).fetchone()
    rows = connection.execute(
        "SELECT link, epsilon, delta, accountant FROM limits ORDER BY id"
    ).fetchall()
    stood: list[Limit | None] = [None, *(Limit(*row) for link, *row in rows if link < first)]
    return [stood[-1], *(Limit(*row) for link, *row in rows if first < link <= until)]


def read_plans(connection: sqlite3.Connection) -> dict[str, dict[Event, int]]:
    """By run, what was planned of each event."""
    plans: dict[str, dict[Event, int]] = {}
    query = (
        "SELECT p.run, e.event, p.most FROM plans p JOIN events e ON e.id = p.event ORDER BY p.id"
    )
    for run, line, most in connection.execute(query):
        plans.setdefault(run, {})[decode(line)] = int(most)
    return plans


def data_mark(salt: str, data: str) -> str:
    """What a ledger keeps of the digest of its data; it says nothing of the data to whoever lacks
    the salt.
    """
    return hmac.new(bytes.fromhex(salt), data.encode(), hashlib.sha256).hexdigest() if data else ""


def check_same_kind(path: Path, found: LedgerAccount, asked: LedgerAccount) -> None:
    """Epsilons for other units or neighbours cannot be added up."""
    if (found.unit, found.neighbours) != (asked.unit, asked.neighbours):
        kinds = (
            f"one {account.unit} (neighbours: {account.neighbours})" for account in (found, asked)
        )
        raise DpflError(
            f"The ledger {path} counts releases for {' and not for '.join(kinds)}, which cannot be "
            "added up; keep another "
            "folder of ledgers for this run (privacy.ledger)."
        )
