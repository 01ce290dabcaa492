"""The table of a run: one row per round, which reports, charts and comparisons read.

    for row in read_rows(folder / "metrics.sqlite"):  # also while the run is under way
        print(row.round, row.accuracy, row.epsilon)

`Metrics` writes three tables into one SQLite file: `rounds` (a `RoundRow` each), `updates` (how far
the model moved, an `UpdateRow` each) and `lost` (a line per lost reply). Only the run writes. It
adds a round in one transaction, after the round's checkpoint is on the disk. A run that resumes
deletes the rows after its checkpoint (`forget_after`). The `read_...` functions never write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpfl.dataframe import ColumnTable
from dpfl.deprecation import deprecated_names
from dpfl.errors import DpflError
from dpfl.notebook_repr import NotebookView
from dpfl.privacy.ledger.database import connect_to_read

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RoundRow:
    """One round, as the metrics hold it.

    Attributes:
        round: The number of the round, from 1.
        steps: The local steps of each client in this round.
        iterations: The local steps of each client in all rounds so far.
        clients: How many clients took part, as far as that may be shown.
        accuracy: On the public test set; None if it was not measured.
        loss: The mean loss on the public test set; None if it was not measured.
        epsilon: An upper bound on the epsilon of the releases so far; None without a guarantee.
        clip: The clip norm, where it may change from round to round.
        bytes: Traffic of the run so far.
        seconds: Duration of the run so far.
        headline: The first metric of the task; None if it was not measured.
    """

    round: int
    steps: int
    iterations: int
    clients: int
    accuracy: float | None
    loss: float | None
    epsilon: float | None
    clip: float | None
    bytes: int
    seconds: float
    headline: float | None = None

    @property
    def measured(self) -> float | None:
        """The headline; accuracy in runs of earlier versions, which recorded nothing else."""
        return self.accuracy if self.headline is None else self.headline


COLUMNS = tuple(RoundRow.__dataclass_fields__)


class RunHistory(tuple[RoundRow, ...], ColumnTable, NotebookView, shown_by="history_page"):
    """The rounds of a run, one after another; as a table by `.to_arrow()` and `.to_pandas()`."""

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Gives the rounds as columns.

        Returns:
            For each field of `RoundRow` its values.
        """
        return {name: [getattr(row, name) for row in self] for name in COLUMNS}


@dataclass(frozen=True)
class UpdateRow:
    """The length of a round's step, or of the update of one client.

    Attributes:
        round: The number of the round, from 1.
        whose: The client whose update it is; "" for the step of the whole round.
        norm: The L2 norm of the update or step.
        angle: Its angle to the step of the round before, in degrees; None if either is zero.
        noise: The L2 norm that the noise alone would have, where it is known from settings.
        clip: The clip norm of an update; None if it has none.
    """

    round: int
    whose: str
    norm: float
    angle: float | None
    noise: float | None = None
    clip: float | None = None


UPDATES = tuple(UpdateRow.__dataclass_fields__)


LESS_IS_BETTER = frozenset({"RMSE", "deviance", "mean distance", "perplexity", "clipped loss"})
"""Headlines that are better the lower they are."""


def figure(name: str, value: float | None) -> str:
    """Shows a metric as people read it.

    Args:
        name: The name of the metric.
        value: Its value; None if it was not measured.

    Returns:
        Name and value: accuracy in per cent, others with four decimals, "-" for None.
    """
    return (
        f"{name} "
        f"{'-' if value is None else f'{value:.2%}' if name == 'accuracy' else f'{value:.4f}'}"
    )


class Metrics:
    """A table of rounds, in SQLite while the run goes on and in Parquet for whoever wants it."""

    def __init__(self, path: Path) -> None:
        self._path, self._lost_count = path, 0
        try:
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = OFF")
            columns = ", ".join(
                f"{name} {'INTEGER PRIMARY KEY' if name == 'round' else ''}" for name in COLUMNS
            )
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS rounds ({columns})")
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS updates ({', '.join(UPDATES)}, PRIMARY KEY (round, "
                "whose))"
            )
            self._connection.execute("CREATE TABLE IF NOT EXISTS lost (line TEXT PRIMARY KEY)")
        except sqlite3.Error as error:
            raise DpflError(
                f"The metrics {path} cannot be opened ({error}); move the file away, then resume."
            ) from error

    def add(
        self, row: RoundRow, updates: Sequence[UpdateRow] = (), lost_replies: Sequence[str] = ()
    ) -> None:
        """Writes a round: all of it, or nothing.

        Args:
            row: The round.
            updates: How far it moved the model, and single updates where they may be shown.
            lost_replies: A line for every reply of the run that was lost so far. Lines that an
                earlier call wrote are not written again.

        Raises:
            DpflError: The table cannot be written.
        """
        new = [(line,) for line in lost_replies[self._lost_count :]]
        lines = {
            "rounds": [astuple(row)],
            "updates": [astuple(update) for update in updates],
            "lost": new,
        }
        try:
            self._connection.execute("BEGIN")
            for table, values in lines.items():
                for value in values:
                    marks = ", ".join("?" * len(value))
                    self._connection.execute(
                        f"INSERT OR REPLACE INTO {table} VALUES ({marks})", value
                    )
            self._connection.execute("COMMIT")
            self._lost_count += len(new)
        except sqlite3.Error as error:
            raise DpflError(
                f"The metrics {self._path} cannot be written ({error}); fix the disk, then resume."
            ) from error

    def forget_after(self, round: int) -> None:
        """Deletes rounds that were made before a crash and will be made again.

        Args:
            round: The last round to keep, which is that of the checkpoint.
        """
        for table in ("rounds", "updates"):
            self._connection.execute(f"DELETE FROM {table} WHERE round > ?", (round,))

    def last_round(self) -> int:
        """Finds the last round in the table.

        Returns:
            Its number; 0 where there is none.
        """
        return int(
            self._connection.execute("SELECT COALESCE(MAX(round), 0) FROM rounds").fetchone()[0]
        )

    def rows(self) -> list[RoundRow]:
        """Reads all rounds.

        Returns:
            The rounds in order.
        """
        return _rows(self._connection)

    def export(self, path: Path) -> None:
        """Writes all rounds as Parquet.

        Args:
            path: The file to write.
        """
        from pyarrow import parquet

        parquet.write_table(RunHistory(self.rows()).to_arrow(), path)

    def close(self) -> None:
        """Closes the table."""
        self._connection.close()


def read_rows(path: Path) -> list[RoundRow]:
    """Reads the rounds of any run, under way or ended, also from a read-only disk.

    Args:
        path: The file of the metrics.

    Returns:
        The rounds in order; [] where there is no file yet.

    Raises:
        DpflError: The file cannot be read.
    """
    return query(path, _rows)


THIN = """
SELECT MAX(round), AVG(steps), MAX(iterations), AVG(clients), AVG(accuracy), AVG(loss), MAX(epsilon), AVG(clip), MAX(bytes),
MAX(seconds), AVG(headline) FROM rounds WHERE round > ? AND round <= ?
"""  # noqa: E501
"""One row for a range of rounds. One query per range takes a third of the time of one GROUP BY,
which has to sort.
"""


def read_thinned(path: Path, most: int, after: int = 0) -> list[RoundRow]:
    """Reads a limited number of rows, for a chart of a long run.

    Args:
        path: The file of the metrics.
        most: The most rows to return.
        after: Only rounds after this one count.

    Returns:
        The rounds themselves if there are few enough. Otherwise each row stands for as many
        rounds: it has the mean of what is measured, and the maximum of what only grows. The last
        round stands for itself.

    Raises:
        DpflError: The file cannot be read.
    """

    def rows(connection: sqlite3.Connection) -> list[RoundRow]:
        first, last = connection.execute(
            "SELECT MIN(round), MAX(round) FROM rounds WHERE round > ?", (after,)
        ).fetchone()
        if last is None or last - first < most:
            return _rows(connection, after)
        stride = -(-(last - first) // max(most - 2, 1))
        ends = [*range(first - 1 - (first - 1) % stride, last - 1, stride), last - 1]
        pieces = (
            connection.execute(THIN, (max(low, after), high)).fetchone()
            for low, high in pairwise(ends)
        )
        return [RoundRow(*piece) for piece in pieces if piece[0] is not None] + _rows(
            connection, last - 1
        )

    return query(path, rows)


def read_updates(path: Path, most: int | None = None) -> list[UpdateRow]:
    """Reads how far rounds moved the model, and the single updates.

    Args:
        path: The file of the metrics.
        most: About the most rows to return. Of more, only rounds at equal distances are read, the
            last among them. None reads all.

    Returns:
        The rows, in the order in which they were written.

    Raises:
        DpflError: The file cannot be read.
    """

    def updates(connection: sqlite3.Connection) -> list[UpdateRow]:
        if not _has(connection, "updates"):
            return []
        count, last = connection.execute("SELECT COUNT(*), MAX(round) FROM updates").fetchone()
        stride = max(1, -(-count // most)) if most else 1
        sql = f"SELECT {', '.join(UPDATES)} FROM updates WHERE round % ? = ? % ? ORDER BY rowid"
        return [UpdateRow(*line) for line in connection.execute(sql, (stride, last, stride))]

    return query(path, updates)


def read_lost(path: Path, most: int = -1) -> list[str]:
    """Reads which replies were refused or lost.

    Args:
        path: The file of the metrics.
        most: How many of the last lines to return; -1 for all.

    Returns:
        A line per reply with its round and client, in the order in which they were lost.

    Raises:
        DpflError: The file cannot be read.
    """

    def lines(connection: sqlite3.Connection) -> list[str]:
        sql = "SELECT line FROM lost ORDER BY rowid DESC LIMIT ?"
        return (
            [line for (line,) in connection.execute(sql, (most,))][::-1]
            if _has(connection, "lost")
            else []
        )

    return query(path, lines)


def query(path: Path, question: Callable[[sqlite3.Connection], list[Answer]]) -> list[Answer]:
    """Asks the metrics of any run, without writing anything.

    Args:
        path: The file of the metrics.
        question: Reads the answer from an open connection.

    Returns:
        The answer; [] where there is no file yet.

    Raises:
        DpflError: The file cannot be read.
    """
    if not path.exists():
        return []
    try:
        with closing(connect_to_read(path)) as connection:
            return question(connection)
    except (sqlite3.Error, DpflError) as error:
        raise DpflError(
            f"The metrics {path} cannot be read ({error.__cause__ or error}); restore them from a "
            "copy."
        ) from error


def _has(connection: sqlite3.Connection, table: str) -> bool:
    """Says whether the file has a table. Earlier versions of dpfl wrote fewer tables."""
    return (
        connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        is not None
    )


def _rows(connection: sqlite3.Connection, after: int = 0) -> list[RoundRow]:
    names = ", ".join(COLUMNS)
    sql = f"SELECT {names} FROM rounds WHERE round > ? ORDER BY round"
    return [RoundRow(*values) for values in connection.execute(sql, (after,))]


if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__, {"Row": "RoundRow", "History": "RunHistory", "Update": "UpdateRow"}
    )
