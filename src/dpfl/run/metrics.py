"""The rounds of a run as a table: written by the run alone, read by whoever compares runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from dpfl.dataframe import ColumnTable
from dpfl.errors import DpflError
from dpfl.notebook_repr import NotebookView
from dpfl.privacy.ledger.database import connect_to_read

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RoundRow:
    """One round, as the metrics hold it. `epsilon` is that of what was used so far, an upper bound
    while the run goes on.
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
        """The headline; accuracy, where that is all that was kept."""
        return self.accuracy if self.headline is None else self.headline


COLUMNS = tuple(RoundRow.__dataclass_fields__)


class RunHistory(tuple[RoundRow, ...], ColumnTable, NotebookView, shown_by="history_page"):
    """The rounds of a run, one after another; as a table by `.to_arrow()` and `.to_pandas()`."""

    def columns(self) -> Mapping[str, Sequence[Any]]:
        return {name: [getattr(row, name) for row in self] for name in COLUMNS}


@dataclass(frozen=True)
class UpdateRow:
    """How far a round moved the model, or, with a name, how long one update was: an L2 norm, and
    the angle to the step before.

    `noise` is the norm that the noise alone would have, `clip` the level that an update was to be
    inside of.
    """

    round: int
    whose: str
    norm: float
    angle: float | None
    noise: float | None = None
    clip: float | None = None


UPDATES = tuple(UpdateRow.__dataclass_fields__)


LESS_IS_BETTER = frozenset({"RMSE", "deviance", "mean distance", "perplexity", "clipped loss"})
"""Headlines of tasks of which the lowest is the best."""


def figure(name: str, value: float | None) -> str:
    """A metric as people read it."""
    return (
        f"{name} "
        f"{'-' if value is None else f'{value:.2%}' if name == 'accuracy' else f'{value:.4f}'}"
    )


class Metrics:
    """A table of rounds, in SQLite while the run goes on and in Parquet for whoever wants it."""

    def __init__(self, path: Path) -> None:
        self._path, self._told = path, 0
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
        self, row: RoundRow, updates: Sequence[UpdateRow] = (), lost: Sequence[str] = ()
    ) -> None:
        """A round, all of it or nothing; of all that were `lost` so far, those that are new."""
        new = [(line,) for line in lost[self._told :]]
        lines = {
            "rounds": [astuple(row)],
            "updates": [astuple(one) for one in updates],
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
            self._told += len(new)
        except sqlite3.Error as error:
            raise DpflError(
                f"The metrics {self._path} cannot be written ({error}); mend the disk, then resume."
            ) from error

    def forget_after(self, round: int) -> None:
        """Rounds that were begun before a crash and are made again."""
        for table in ("rounds", "updates"):
            self._connection.execute(f"DELETE FROM {table} WHERE round > ?", (round,))

    def last_round(self) -> int:
        """0 where there is none."""
        return int(
            self._connection.execute("SELECT COALESCE(MAX(round), 0) FROM rounds").fetchone()[0]
        )

    def rows(self) -> list[RoundRow]:
        return _rows(self._connection)

    def export(self, path: Path) -> None:
        from pyarrow import parquet

        parquet.write_table(RunHistory(self.rows()).to_arrow(), path)

    def close(self) -> None:
        self._connection.close()


def read_rows(path: Path) -> list[RoundRow]:
    """Of any run, under way, ended or on media that cannot be written; nothing is written. None
    where there is no table yet.
    """
    return reading(path, _rows)


THIN = """
SELECT MAX(round), AVG(steps), MAX(iterations), AVG(clients), AVG(accuracy), AVG(loss), MAX(epsilon), AVG(clip), MAX(bytes),
MAX(seconds), AVG(headline) FROM rounds WHERE round > ? AND round <= ?
"""  # noqa: E501
"""Of some rounds. Asked for one piece after another, which takes a third of the time that GROUP BY
takes to sort them.
"""


def read_thinned(path: Path, most: int, after: int = 0) -> list[RoundRow]:
    """At most so many rows of the rounds after one: of more, means over as many rounds each, and
    the last as it is.
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

    return reading(path, rows)


def read_updates(path: Path, most: int | None = None) -> list[UpdateRow]:
    """Steps and updates. Of more than `most` those of every so many rounds, and of the last."""

    def updates(connection: sqlite3.Connection) -> list[UpdateRow]:
        if not _has(connection, "updates"):
            return []
        count, last = connection.execute("SELECT COUNT(*), MAX(round) FROM updates").fetchone()
        stride = max(1, -(-count // most)) if most else 1
        query = f"SELECT {', '.join(UPDATES)} FROM updates WHERE round % ? = ? % ? ORDER BY rowid"
        return [UpdateRow(*line) for line in connection.execute(query, (stride, last, stride))]

    return reading(path, updates)


def read_lost(path: Path, most: int = -1) -> list[str]:
    """Who was refused or lost, and when, in the order in which it happened; the last so many."""

    def lines(connection: sqlite3.Connection) -> list[str]:
        query = "SELECT line FROM lost ORDER BY rowid DESC LIMIT ?"
        return (
            [line for (line,) in connection.execute(query, (most,))][::-1]
            if _has(connection, "lost")
            else []
        )

    return reading(path, lines)


def reading(path: Path, question: Callable[[sqlite3.Connection], list[Answer]]) -> list[Answer]:
    """What the file answers; nothing where it is not there yet."""
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
    """A run of before there was such a table has none."""
    return (
        connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        is not None
    )


def _rows(connection: sqlite3.Connection, after: int = 0) -> list[RoundRow]:
    names = ", ".join(COLUMNS)
    query = f"SELECT {names} FROM rounds WHERE round > ? ORDER BY round"
    return [RoundRow(*values) for values in connection.execute(query, (after,))]
