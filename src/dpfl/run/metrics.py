"""The rounds of a run as a table: written by the run alone, read by whoever compares runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpfl.errors import DpflError
from dpfl.frames import Frame
from dpfl.privacy.ledger_file import connect_to_read
from dpfl.shown import Shown


@dataclass(frozen=True)
class Row:
    """One round, as the metrics hold it. `epsilon` is that of what was used so far, an upper bound while the run goes on."""

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


COLUMNS = tuple(Row.__dataclass_fields__)


class History(tuple[Row, ...], Frame, Shown, shown_by="history"):
    """The rounds of a run, one after another; as a table by `.to_arrow()` and `.to_pandas()`."""

    def columns(self) -> Mapping[str, Sequence[Any]]:
        return {name: [getattr(row, name) for row in self] for name in COLUMNS}


def figure(name: str, value: float | None) -> str:
    """A metric as people read it."""
    return f"{name} {'-' if value is None else f'{value:.2%}' if name == 'accuracy' else f'{value:.4f}'}"


class Metrics:
    """A table of rounds, in SQLite while the run goes on and in Parquet for whoever wants it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = OFF")
            columns = ", ".join(f"{name} {'INTEGER PRIMARY KEY' if name == 'round' else ''}" for name in COLUMNS)
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS rounds ({columns})")
        except sqlite3.Error as error:
            raise DpflError(f"The metrics {path} cannot be opened ({error}); move the file away, then resume.") from error

    def add(self, row: Row) -> None:
        marks = ", ".join("?" * len(COLUMNS))
        try:
            self._connection.execute(f"INSERT OR REPLACE INTO rounds VALUES ({marks})", tuple(asdict(row).values()))
        except sqlite3.Error as error:
            raise DpflError(f"The metrics {self._path} cannot be written ({error}); mend the disk, then resume.") from error

    def forget_after(self, round: int) -> None:
        """Rounds that were begun before a crash and are made again."""
        self._connection.execute("DELETE FROM rounds WHERE round > ?", (round,))

    def last_round(self) -> int:
        """0 where there is none."""
        return int(self._connection.execute("SELECT COALESCE(MAX(round), 0) FROM rounds").fetchone()[0])

    def rows(self) -> list[Row]:
        return _rows(self._connection)

    def export(self, path: Path) -> None:
        from pyarrow import parquet

        parquet.write_table(History(self.rows()).to_arrow(), path)

    def close(self) -> None:
        self._connection.close()


def read_rows(path: Path) -> list[Row]:
    """Of any run, under way, ended or on media that cannot be written; nothing is written. None where there is no table yet."""
    if not path.exists():
        return []
    try:
        with closing(connect_to_read(path)) as connection:
            return _rows(connection)
    except (sqlite3.Error, DpflError) as error:
        raise DpflError(f"The metrics {path} cannot be read ({error.__cause__ or error}); restore them from a copy.") from error


def _rows(connection: sqlite3.Connection) -> list[Row]:
    names = ", ".join(COLUMNS)
    return [Row(*values) for values in connection.execute(f"SELECT {names} FROM rounds ORDER BY round")]
