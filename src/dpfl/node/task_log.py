"""Runs that a node joined and orders that it saw, on its disk: an order is done once, and its reply
kept while it may be lost.

An order is written down before its debit, and its reply before it leaves. A reply that is there is
sent again; an order without one was broken off, and is another release if it is done again.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import Event, decode, encode
from dpfl.privacy.ledger.chain import ChainTail
from dpfl.refusals import ProtocolError, RefusalReason

FORMAT = 1
MOST_ATTEMPTS = 3
"""Times that an order is begun; each may have been paid for."""
MOST_KEPT = 16
"""Replies of all runs."""
MOST_WAITING = 256
"""Runs that were joined and never worked for."""

SCHEMA = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, owner TEXT NOT NULL, proposal TEXT NOT NULL, size INTEGER NOT NULL, round INTEGER NOT NULL DEFAULT -1
);
CREATE TABLE orders (
    run TEXT NOT NULL, name TEXT NOT NULL, letter TEXT NOT NULL, round INTEGER NOT NULL, attempts INTEGER NOT NULL,
    event TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (run, name)
);
CREATE TABLE seen (links INTEGER NOT NULL, seal TEXT NOT NULL);
"""  # noqa: E501


@dataclass(frozen=True)
class RunRecord:
    """As it was joined: whose it is, what was proposed, and the size that was declared."""

    owner: str
    proposal: dict[str, Any]
    size: int


@dataclass(frozen=True)
class TaskRecord:
    """One that came: its run and name, the digest of its letter, its round, and what it costs."""

    run: str
    name: str
    letter: str
    round: int
    event: Event | None = None
    count: int = 0


class TaskLog:
    def __init__(self, folder: Path) -> None:
        self._path, self._replies = folder / "orders.sqlite", folder / "replies"
        try:
            self._replies.mkdir(mode=0o700, exist_ok=True)
            for unfinished in self._replies.glob("*.new"):
                unfinished.unlink()
            self._connection = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA synchronous = FULL")
            self._create()
        except (OSError, sqlite3.Error) as error:
            raise _unusable(self._path, error) from error

    @classmethod
    def seen_in(cls, folder: Path) -> ChainTail:
        """How far the ledger had come by the orders of a folder; nothing is made where there are
        none.
        """
        found = cls._asked(folder, "SELECT links, seal FROM seen")
        return ChainTail(*found[0]) if found else ChainTail()

    @classmethod
    def counts_in(cls, folder: Path) -> dict[Event, int]:
        """Releases that the orders of a folder asked for, each once."""
        query = "SELECT event, SUM(count) FROM orders WHERE event != '' GROUP BY event"
        return {decode(line): int(count) for line, count in cls._asked(folder, query)}

    @staticmethod
    def _asked(folder: Path, query: str) -> list[Any]:
        """Read and nothing else: a node may be at work there. Nothing where there are no orders."""
        path = folder / "orders.sqlite"
        if not path.exists():
            return []
        try:
            with closing(
                sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
            ) as connection:
                return connection.execute(query).fetchall()
        except sqlite3.Error as error:
            raise _unusable(path, error) from error

    @staticmethod
    def put_away(folder: Path) -> None:
        """Runs that were under way are over: what they made is counted, and not as theirs."""
        with suppress(FileNotFoundError):
            (folder / "orders.sqlite").replace(folder / "orders.sqlite.old")

    def _create(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == FORMAT:
            return
        if self._connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            raise sqlite3.DatabaseError("it is of another version")
        self._connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")

    def run(self, run: str) -> RunRecord | None:
        found = self._connection.execute(
            "SELECT owner, proposal, size FROM runs WHERE run = ?", (run,)
        ).fetchone()
        return RunRecord(found[0], json.loads(found[1]), found[2]) if found else None

    def join(self, name: str, run: RunRecord) -> None:
        """Said once; of those that never came to work only the latest are remembered."""
        with self._transaction() as do:
            do(
                "INSERT INTO runs (run, owner, proposal, size) VALUES (?, ?, ?, ?)",
                (name, run.owner, json.dumps(run.proposal), run.size),
            )
            do(
                "DELETE FROM runs WHERE round < 0 AND rowid NOT IN "
                "(SELECT rowid FROM runs WHERE round < 0 ORDER BY rowid DESC LIMIT ?)",
                (MOST_WAITING,),
            )

    def reply(self, order: TaskRecord) -> bytes | None:
        """The one that was kept for the same letter; another letter for the same order is
        refused.
        """
        found = self._find(order)
        if found and found[0] != order.letter:
            raise ProtocolError(RefusalReason.ORDER_CHANGED)
        path = self._file(order)
        return path.read_bytes() if found and path.exists() else None

    def made(self, run: str, event: Event, besides: str) -> int:
        """Releases of an event that orders of a run asked for, each once; the order `besides` left
        out.
        """
        query = (
            "SELECT COALESCE(SUM(count), 0) FROM orders WHERE run = ? AND event = ? AND name != ?"
        )
        return int(self._connection.execute(query, (run, encode(event), besides)).fetchone()[0])

    def begin(self, order: TaskRecord) -> None:
        """On disk before its debit; what came before its round is over."""
        with self._transaction() as do:
            (latest,) = do("SELECT round FROM runs WHERE run = ?", (order.run,)).fetchone()
            if order.round < latest:
                raise ProtocolError(RefusalReason.ORDER_PAST)
            found = self._find(order)
            if found and found[1] >= MOST_ATTEMPTS:
                raise ProtocolError(RefusalReason.TOO_MANY_ATTEMPTS)
            line = encode(order.event) if order.event is not None else ""
            do(
                "INSERT INTO orders VALUES (?, ?, ?, ?, 1, ?, ?) ON CONFLICT DO UPDATE SET "
                "attempts = attempts + 1",
                (order.run, order.name, order.letter, order.round, line, order.count),
            )
            do("UPDATE runs SET round = ? WHERE run = ?", (order.round, order.run))
        if order.round > latest:
            self._forget_replies(order.run, order.round)

    def keep(self, order: TaskRecord, reply: bytes) -> None:
        """Whole on disk, or not there at all."""
        path = self._file(order)
        unfinished = path.with_suffix(".new")
        with os.fdopen(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
        ) as file:
            file.write(reply)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        folder = os.open(self._replies, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._drop_oldest()

    def take_back(self, order: TaskRecord) -> None:
        """One that was refused in the end, with nothing debited."""
        with self._transaction() as do:
            do(
                "DELETE FROM orders WHERE run = ? AND name = ? AND attempts = 1",
                (order.run, order.name),
            )
            do(
                "UPDATE orders SET attempts = attempts - 1 WHERE run = ? AND name = ?",
                (order.run, order.name),
            )

    def see(self, tail: ChainTail) -> None:
        """How far the ledger's chain is known to have come."""
        with self._transaction() as do:
            do("DELETE FROM seen")
            do("INSERT INTO seen VALUES (?, ?)", (tail.links, tail.seal))

    @property
    def seen(self) -> ChainTail:
        found = self._connection.execute("SELECT links, seal FROM seen").fetchone()
        return ChainTail(*found) if found else ChainTail()

    def _find(self, order: TaskRecord) -> tuple[str, int] | None:
        query = "SELECT letter, attempts FROM orders WHERE run = ? AND name = ?"
        return self._connection.execute(query, (order.run, order.name)).fetchone()  # type: ignore[no-any-return]

    def _file(self, order: TaskRecord) -> Path:
        name = sha256(f"{order.run} {order.name} {order.letter}".encode()).hexdigest()[:32]
        return self._replies / f"{name}.letter"

    def _forget_replies(self, run: str, round: int) -> None:
        query = "SELECT name, letter FROM orders WHERE run = ? AND round < ?"
        for name, letter in self._connection.execute(query, (run, round)).fetchall():
            self._file(TaskRecord(run, name, letter, 0)).unlink(missing_ok=True)

    def _drop_oldest(self) -> None:
        """An order whose reply is dropped is not done again."""
        held = sorted(self._replies.glob("*.letter"), key=lambda path: path.stat().st_mtime_ns)
        dropped = {path.name for path in held[:-MOST_KEPT]}
        if not dropped:
            return
        with self._transaction() as do:
            for run, name, letter in do("SELECT run, name, letter FROM orders").fetchall():
                if self._file(TaskRecord(run, name, letter, 0)).name in dropped:
                    do(
                        "UPDATE orders SET attempts = ? WHERE run = ? AND name = ?",
                        (MOST_ATTEMPTS, run, name),
                    )
        for name in dropped:
            (self._replies / name).unlink(missing_ok=True)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection.execute
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._connection.close()


def _unusable(path: Path, error: Exception) -> DpflError:
    return DpflError(
        f"The orders {path} cannot be used ({error}); bring them back from a copy, or move them "
        "away: runs that the ledger "
        "knows are then over for this node."
    )
