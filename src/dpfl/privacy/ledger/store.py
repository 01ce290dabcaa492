"""An open ledger file: its connection, its transactions, and a snapshot of what it holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import Event, EventCounts, decode, encode
from dpfl.privacy.ledger.account import LedgerAccount, data_mark
from dpfl.privacy.ledger.chain import ChainTail, Value, append_row, check_chain
from dpfl.privacy.ledger.database import check_schema, ledger_error
from dpfl.privacy.ledger.limit import Limit


@dataclass(frozen=True)
class LedgerSnapshot:
    """The content of a ledger at one version of its file, so that no debit reads all of it again.

    Attributes:
        version: SQLite's version of the data.
        tail: The end of the chain.
        spending: The count of every event.
        limit: The owner's limit.
        mark: The mark of the data that the ledger counts; empty before the first debit.
        events: The number of each event's row.
        runs: The names in the table of runs.
    """

    version: int
    tail: ChainTail
    spending: EventCounts
    limit: Limit | None
    mark: str
    events: Mapping[Event, int]
    runs: frozenset[str]


def read_spending(
    connection: sqlite3.Connection, where: str = "1", *arguments: Value
) -> dict[Event, int]:
    """Sums the debits of each event.

    Args:
        connection: An open ledger file.
        where: An SQL condition on the debits `d`.
        *arguments: Its arguments.

    Returns:
        The count of each event.
    """
    query = (
        "SELECT e.event, SUM(d.count) FROM debits d JOIN events e ON e.id = d.event WHERE "
        f"{where} GROUP BY e.id"
    )
    return {decode(line): int(count) for line, count in connection.execute(query, arguments)}


def read_limit(connection: sqlite3.Connection) -> Limit | None:
    """Reads the limit that stands now.

    Args:
        connection: An open ledger file.

    Returns:
        The last limit that the owner set; None without one.
    """
    query = "SELECT epsilon, delta, accountant FROM limits ORDER BY rowid DESC LIMIT 1"
    row = connection.execute(query).fetchone()
    return Limit(*row) if row else None


def _read_snapshot(connection: sqlite3.Connection, version: int) -> LedgerSnapshot:
    """Checks the whole chain and reads what it holds."""
    tail, ask = check_chain(connection), connection.execute
    mark = ask("SELECT mark FROM holdings ORDER BY id DESC LIMIT 1").fetchone()
    events = {decode(line): number for number, line in ask("SELECT id, event FROM events")}
    runs = frozenset(run for (run,) in ask("SELECT run FROM runs"))
    return LedgerSnapshot(
        version,
        tail,
        read_spending(connection),
        read_limit(connection),
        mark[0] if mark else "",
        events,
        runs,
    )


class LedgerStore:
    """An open ledger file. Its rows are checked when it opens and whenever another process wrote.

    Attributes:
        path: The file.
        account: Whose ledger it is.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, data: str = "") -> None:
        self.path = path
        self._connection = connection
        self._snapshot: LedgerSnapshot | None = None
        with self._errors():
            try:
                self._file = _file_id(path)
                check_schema(path, connection)
                connection.execute("BEGIN")
                self._refresh()
                connection.execute("COMMIT")
                query = "SELECT owner, unit, neighbours, salt FROM account"
                row = connection.execute(query).fetchone()
                self.account, self._salt = LedgerAccount(*row[:3]), row[3]
                self._mark = data_mark(row[3], data)
            except BaseException:
                connection.close()
                raise

    @property
    def is_in_place(self) -> bool:
        """Whether the path still names the open file. A backup may have taken its place."""
        return _file_id(self.path) == self._file

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    @property
    def _now(self) -> LedgerSnapshot:
        """The content of the ledger; only inside a transaction."""
        assert self._snapshot is not None
        return self._snapshot

    def _refresh(self) -> None:
        """Reads and checks the ledger again if another connection wrote since."""
        version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        if self._snapshot is None or self._snapshot.version != version:
            self._snapshot = _read_snapshot(self._connection, version)

    def _append(self, table: str, *values: Value) -> None:
        tail = append_row(self._connection, self._now.tail, table, *values)
        self._snapshot = replace(self._now, tail=tail)

    def _register(self, run: str, event: Event | None = None) -> int:
        """Writes a run and an event down once, and returns the event's number."""
        if run not in self._now.runs:
            self._append("runs", run)
            self._snapshot = replace(self._now, runs=self._now.runs | {run})
        if event is None:
            return 0
        if event not in self._now.events:
            self._append("events", encode(event))
            number = len(self._now.events) + 1
            self._snapshot = replace(self._now, events={**self._now.events, event: number})
        return self._now.events[event]

    def _check_data(self, needed: bool = False) -> None:
        mark = self._snapshot.mark if self._snapshot else ""
        if mark and self._mark != mark and (self._mark or needed):
            raise DpflError(
                f"The ledger {self.path} counts other data: the samples of this run are different, "
                "or were dealt differently. Use the same data, data.seed and data.names, or set "
                "privacy.ledger to another folder."
            )

    def _flush(self) -> None:
        with self._errors(), self._rolled_back_on_failure():
            self._connection.execute("COMMIT")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._open_transaction() as connection:
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _open_transaction(self) -> Iterator[sqlite3.Connection]:
        """Begins a transaction that nobody else can write beside, and leaves it open."""
        self._connection.execute("BEGIN IMMEDIATE")
        with self._rolled_back_on_failure():
            self._refresh()
            yield self._connection

    @contextmanager
    def _rolled_back_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._snapshot = None
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise ledger_error(self.path, error) from error


def _file_id(path: Path) -> tuple[int, int] | None:
    """Identifies the file at a path, whatever it is called."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
