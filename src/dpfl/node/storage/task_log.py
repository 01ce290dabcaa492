"""The task log: which runs a node joined, which tasks it accepted, and the replies that it sent.

A node may crash at any point of a task, and its reply may be lost on the way. The server then sends
the same message again. The task log makes sure that a task is then executed again only where no
reply can have left the node, and that every release is in the ledger before its reply is on disk.

A task goes through these states. Each is on disk before the next begins:

| state | on disk | if the node crashes in this state, and the task comes again |
|---|---|---|
| received | nothing | it is checked again, as if it were new |
| accepted | a row in `orders`: its name, the digest of its message, its cost, one attempt | nothing was debited; it is executed |
| debited | the same, and the debit in the ledger | it is executed again and **debited again**: the noise of the lost attempt is gone, so this is another release. After `MOST_ATTEMPTS` attempts it is refused (`too-many-attempts`) |
| answered | the same, and the signed reply in `replies/` | the stored reply is **replayed**, byte for byte. Nothing is executed or debited |
| over | a row with a later round of the same run | it is refused (`order-past`); its reply is deleted |

A task that the ledger refuses returns to "received": `take_back` removes its attempt.

Two tasks of one run with the same name and different messages are never both executed: the second
is refused (`order-changed`). With keyed randomness, which is for tests, the second attempt of a task
computes the same release as the first, and the ledger counts it once.

The log also stores how far the ledger had come (`seen`). A ledger that does not include that row
was set back, and the node does not start on it.

Files: `orders.sqlite` (written with `synchronous = FULL`) and `replies/*.letter` (written beside
their place, synchronised, and renamed).
"""  # noqa: E501

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
"""How often a task is begun. Each attempt may have been paid for."""
MOST_KEPT = 16
"""How many replies are stored, of all runs together."""
MOST_WAITING = 256
"""How many runs are remembered that were joined and have not sent a task."""

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
    """A run as the node joined it.

    Attributes:
        owner: The public key of the run's owner.
        proposal: The proposal, as JSON has it.
        size: The number of units that the node declared.
    """

    owner: str
    proposal: dict[str, Any]
    size: int


@dataclass(frozen=True)
class TaskRecord:
    """A task as the log knows it.

    Attributes:
        run: Its run.
        name: Its name within the run (`dpfl.protocol.task_messages.task_name`).
        message_digest: The digest of the message that brought it.
        round: Its round.
        event: The event of each release that it asks for; None where it asks for none.
        count: How many such releases.
    """

    run: str
    name: str
    message_digest: str
    round: int
    event: Event | None = None
    count: int = 0


class TaskLog:
    """The task log in a node's folder. See the module's documentation for the states of a task."""

    def __init__(self, folder: Path) -> None:
        self._path, self._replies = folder / "orders.sqlite", folder / "replies"
        try:
            self._replies.mkdir(mode=0o700, exist_ok=True)
            for new_path in self._replies.glob("*.new"):
                new_path.unlink()
            self._connection = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA synchronous = FULL")
            self._create()
        except (OSError, sqlite3.Error) as error:
            raise _unusable(self._path, error) from error

    @classmethod
    def tail_in(cls, folder: Path) -> ChainTail:
        """Reads how far the ledger had come, without opening the log for writing.

        Args:
            folder: The node's folder, where another process may be at work.

        Returns:
            The last row of the ledger that the log knows of; an empty tail where there is no log.

        Raises:
            DpflError: The log cannot be read.
        """
        rows = cls._query(folder, "SELECT links, seal FROM seen")
        return ChainTail(*rows[0]) if rows else ChainTail()

    @classmethod
    def counts_in(cls, folder: Path) -> dict[Event, int]:
        """Counts the releases that the tasks of a log asked for, each once.

        Args:
            folder: The node's folder, where another process may be at work.

        Returns:
            The number of releases of each event.

        Raises:
            DpflError: The log cannot be read.
        """
        query = "SELECT event, SUM(count) FROM orders WHERE event != '' GROUP BY event"
        return {decode(line): int(count) for line, count in cls._query(folder, query)}

    @staticmethod
    def _query(folder: Path, query: str) -> list[Any]:
        path = folder / "orders.sqlite"
        if not path.exists():
            return []
        try:
            uri = f"{path.resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                return connection.execute(query).fetchall()
        except sqlite3.Error as error:
            raise _unusable(path, error) from error

    @staticmethod
    def put_away(folder: Path) -> None:
        """Ends all runs that were under way, after their releases were counted in another way.

        Args:
            folder: The node's folder. Its log is renamed to `orders.sqlite.old`.
        """
        with suppress(FileNotFoundError):
            (folder / "orders.sqlite").replace(folder / "orders.sqlite.old")

    def _create(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == FORMAT:
            return
        if self._connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            raise sqlite3.DatabaseError("it is of another version")
        self._connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")

    def run(self, name: str) -> RunRecord | None:
        """Looks up a run.

        Args:
            name: The run.

        Returns:
            The run as the node joined it; None where it did not.
        """
        row = self._connection.execute(
            "SELECT owner, proposal, size FROM runs WHERE run = ?", (name,)
        ).fetchone()
        return RunRecord(row[0], json.loads(row[1]), row[2]) if row else None

    def join(self, name: str, run: RunRecord) -> None:
        """Records that the node joined a run.

        Of the runs that have sent no task, only the latest `MOST_WAITING` are remembered.

        Args:
            name: The run.
            run: What was proposed, by whom, and what the node declared.
        """
        with self._transaction() as execute:
            execute(
                "INSERT INTO runs (run, owner, proposal, size) VALUES (?, ?, ?, ?)",
                (name, run.owner, json.dumps(run.proposal), run.size),
            )
            execute(
                "DELETE FROM runs WHERE round < 0 AND rowid NOT IN "
                "(SELECT rowid FROM runs WHERE round < 0 ORDER BY rowid DESC LIMIT ?)",
                (MOST_WAITING,),
            )

    def reply(self, task: TaskRecord) -> bytes | None:
        """Looks up the stored reply to a task.

        Args:
            task: The task.

        Returns:
            The reply to the same message; None where there is none.

        Raises:
            ProtocolError: The task came before with another message (`ORDER_CHANGED`).
        """
        row = self._find(task)
        if row and row[0] != task.message_digest:
            raise ProtocolError(RefusalReason.ORDER_CHANGED)
        path = self._file(task)
        return path.read_bytes() if row and path.exists() else None

    def count_releases(self, run: str, event: Event, besides: str) -> int:
        """Counts the releases of an event that the tasks of a run asked for, each once.

        Args:
            run: The run.
            event: The event.
            besides: The name of a task that is left out.

        Returns:
            The number of releases.
        """
        query = (
            "SELECT COALESCE(SUM(count), 0) FROM orders WHERE run = ? AND event = ? AND name != ?"
        )
        return int(self._connection.execute(query, (run, encode(event), besides)).fetchone()[0])

    def begin(self, task: TaskRecord) -> None:
        """Records an attempt at a task, before its debit. Tasks of earlier rounds are over then.

        Args:
            task: The task, with its cost.

        Raises:
            ProtocolError: The round is over (`ORDER_PAST`), or the task was begun too often
                (`TOO_MANY_ATTEMPTS`).
        """
        with self._transaction() as execute:
            (latest,) = execute("SELECT round FROM runs WHERE run = ?", (task.run,)).fetchone()
            if task.round < latest:
                raise ProtocolError(RefusalReason.ORDER_PAST)
            row = self._find(task)
            if row and row[1] >= MOST_ATTEMPTS:
                raise ProtocolError(RefusalReason.TOO_MANY_ATTEMPTS)
            line = encode(task.event) if task.event is not None else ""
            execute(
                "INSERT INTO orders VALUES (?, ?, ?, ?, 1, ?, ?) ON CONFLICT DO UPDATE SET "
                "attempts = attempts + 1",
                (task.run, task.name, task.message_digest, task.round, line, task.count),
            )
            execute("UPDATE runs SET round = ? WHERE run = ?", (task.round, task.run))
        if task.round > latest:
            self._forget_replies(task.run, task.round)

    def keep(self, task: TaskRecord, reply: bytes) -> None:
        """Stores a reply: whole and synchronised, or not at all.

        Args:
            task: The task.
            reply: The signed reply.
        """
        path = self._file(task)
        new_path = path.with_suffix(".new")
        with os.fdopen(
            os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
        ) as file:
            file.write(reply)
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(path)
        folder = os.open(self._replies, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._drop_oldest()

    def take_back(self, task: TaskRecord) -> None:
        """Removes an attempt that the ledger refused, so that nothing was debited.

        Args:
            task: The task.
        """
        with self._transaction() as execute:
            execute(
                "DELETE FROM orders WHERE run = ? AND name = ? AND attempts = 1",
                (task.run, task.name),
            )
            execute(
                "UPDATE orders SET attempts = attempts - 1 WHERE run = ? AND name = ?",
                (task.run, task.name),
            )

    def see(self, tail: ChainTail) -> None:
        """Records how far the ledger has come.

        Args:
            tail: The ledger's last row.
        """
        with self._transaction() as execute:
            execute("DELETE FROM seen")
            execute("INSERT INTO seen VALUES (?, ?)", (tail.links, tail.seal))

    @property
    def ledger_tail(self) -> ChainTail:
        """How far the ledger is known to have come."""
        row = self._connection.execute("SELECT links, seal FROM seen").fetchone()
        return ChainTail(*row) if row else ChainTail()

    def _find(self, task: TaskRecord) -> tuple[str, int] | None:
        query = "SELECT letter, attempts FROM orders WHERE run = ? AND name = ?"
        return self._connection.execute(query, (task.run, task.name)).fetchone()  # type: ignore[no-any-return]

    def _file(self, task: TaskRecord) -> Path:
        name = sha256(f"{task.run} {task.name} {task.message_digest}".encode()).hexdigest()[:32]
        return self._replies / f"{name}.letter"

    def _forget_replies(self, run: str, round: int) -> None:
        query = "SELECT name, letter FROM orders WHERE run = ? AND round < ?"
        for name, message_digest in self._connection.execute(query, (run, round)).fetchall():
            self._file(TaskRecord(run, name, message_digest, 0)).unlink(missing_ok=True)

    def _drop_oldest(self) -> None:
        """Keeps the latest replies only. A task whose reply is dropped is not executed again."""
        files = sorted(self._replies.glob("*.letter"), key=lambda path: path.stat().st_mtime_ns)
        file_names = {path.name for path in files[:-MOST_KEPT]}
        if not file_names:
            return
        with self._transaction() as execute:
            for run, name, message_digest in execute(
                "SELECT run, name, letter FROM orders"
            ).fetchall():
                if self._file(TaskRecord(run, name, message_digest, 0)).name in file_names:
                    execute(
                        "UPDATE orders SET attempts = ? WHERE run = ? AND name = ?",
                        (MOST_ATTEMPTS, run, name),
                    )
        for name in file_names:
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
        """Closes the database."""
        self._connection.close()


def _unusable(path: Path, error: Exception) -> DpflError:
    return DpflError(
        f"The task log {path} cannot be used ({error}); restore it from a copy, or move it "
        "away: runs that the ledger "
        "knows are then over for this node."
    )
