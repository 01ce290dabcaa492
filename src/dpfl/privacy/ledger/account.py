"""The account of a ledger: its owner, its unit, its limits and plans, and the mark of its data."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from dpfl.deprecation import renamed_keywords
from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import Event, decode
from dpfl.privacy.ledger.limit import Limit

LAST_LINK = 1 << 62
"""A link of the chain beyond any that a ledger has."""


@dataclass(frozen=True)
class LedgerAccount:
    """The owner of a ledger, and the unit of its records.

    Attributes:
        owner: The owner's name.
        unit: The unit: a sample, a person or a client.
        neighbours: The neighbouring relation.
    """

    owner: str
    unit: str
    neighbours: str


def limit_row(limit: Limit) -> tuple[float, float, str]:
    """Turns a limit into a row, with numbers as SQLite gives them back, so that its seal holds.

    Args:
        limit: The limit.

    Returns:
        Epsilon, delta and the accountant's name.
    """
    return float(limit.epsilon), float(limit.delta), limit.accountant


def limits_since_first_debit(
    connection: sqlite3.Connection, until: int = LAST_LINK
) -> list[Limit | None]:
    """Reads the limit at the first debit and each that was set after it.

    Args:
        connection: An open ledger file.
        until: The last link of the chain to read.

    Returns:
        The limits in turn; None where there was none.
    """
    (first,) = connection.execute(
        "SELECT COALESCE(MIN(link), ?) FROM debits", (LAST_LINK,)
    ).fetchone()
    rows = connection.execute(
        "SELECT link, epsilon, delta, accountant FROM limits ORDER BY id"
    ).fetchall()
    limits: list[Limit | None] = [None, *(Limit(*row) for link, *row in rows if link < first)]
    return [limits[-1], *(Limit(*row) for link, *row in rows if first < link <= until)]


def read_plans(connection: sqlite3.Connection) -> dict[str, dict[Event, int]]:
    """Reads what was planned of each event.

    Args:
        connection: An open ledger file.

    Returns:
        The largest number of releases of each event, by run.
    """
    plans: dict[str, dict[Event, int]] = {}
    query = (
        "SELECT p.run, e.event, p.most FROM plans p JOIN events e ON e.id = p.event ORDER BY p.id"
    )
    for run, line, most in connection.execute(query):
        plans.setdefault(run, {})[decode(line)] = int(most)
    return plans


def data_mark(salt: str, data: str) -> str:
    """Computes what a ledger keeps of a digest of its data: HMAC-SHA256 under the ledger's salt.

    Args:
        salt: The ledger's salt.
        data: The digest of the data.

    Returns:
        The mark, which says nothing of the data without the salt; empty without a digest.
    """
    return hmac.new(bytes.fromhex(salt), data.encode(), hashlib.sha256).hexdigest() if data else ""


@renamed_keywords(found="account", asked="expected_account")
def check_same_kind(path: Path, account: LedgerAccount, expected_account: LedgerAccount) -> None:
    """Checks that two accounts have the same unit and neighbours, since other epsilons do not add
    up.

    Args:
        path: The ledger's file, for the message.
        account: The account of the ledger.
        expected_account: The account that is needed.

    Raises:
        DpflError: If they differ.
    """
    if (account.unit, account.neighbours) != (expected_account.unit, expected_account.neighbours):
        kinds = (
            f"one {side.unit} (neighbours: {side.neighbours})"
            for side in (account, expected_account)
        )
        raise DpflError(
            f"The ledger {path} counts releases for {' and not for '.join(kinds)}, which cannot be "
            "added up; keep another "
            "folder of ledgers for this run (privacy.ledger)."
        )
