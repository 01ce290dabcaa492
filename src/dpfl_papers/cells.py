"""The cells of a paper's table, each with the number that the paper prints and the work that gives
ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

NAMES = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
}


@dataclass(frozen=True)
class Outcome:
    """The result of one piece of work: its number, what it cost in privacy, and the series of
    pictures.

    Attributes:
        value: The number in the unit of the table; None if training diverged.
        claimed: Epsilon by the paper's own accounting; None if the paper claims none.
        proven: Epsilon that is proven of the run: a number, "unbounded", or None without privacy.
        unit: Unit of the guarantee: "sample", "person", "client" or "none".
        terms: Unit, neighbours, delta and accountant of `proven`, in words.
        steps: Largest number of local steps that a client made.
        rounds: Number of rounds.
        stopped_by: What ended training, such as "rounds" or "divergence".
        sha256: Digest of the model's weights.
        code: Start of the digest of the code that ran.
        series: Values per round, or per client, by the name of the series.
    """

    value: float | None
    claimed: float | str | None = None
    proven: float | str | None = None
    unit: str = "none"
    terms: str = ""
    steps: int = 0
    rounds: int = 0
    stopped_by: str = ""
    sha256: str = ""
    code: str = ""
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Writes the outcome as JSON.

        Returns:
            One JSON object with every attribute.
        """
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Reads an outcome.

        Args:
            text: What `to_json` returned.

        Returns:
            The outcome.

        Raises:
            ValueError: If the text is not JSON.
            TypeError: If the object has other attributes.
        """
        return cls(**json.loads(text))


class CellWork(Protocol):
    """A piece of work that takes a seed. Equal digests mean equal numbers."""

    tag: ClassVar[str]
    """What the digests of its cells know it by; it never changes, so that stored cells are found
    again.
    """

    @property
    def content(self) -> Mapping[str, Any]:
        """All that the outcome depends on, apart from seed and data."""

    def with_settings(self, settings: Sequence[str]) -> CellWork:
        """Applies settings to the experiment of the work.

        Args:
            settings: Settings of the form `section.key=value`.

        Returns:
            The work with these settings; the same work if it has no experiment.
        """

    def run(self, seed: int, data_dir: Path | None, prefixes: Path | None = None) -> Outcome:
        """Does the work.

        Args:
            seed: Seed of all random draws.
            data_dir: Folder of the data sets; by default `DPFL_DATA`.
            prefixes: Folder in which runs keep checkpoints for longer runs that start alike. None
                keeps and uses none.

        Returns:
            The outcome.
        """


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Attributes:
        group: Name of the part of the table, such as the data set; empty if there is only one.
        row: Name of the row.
        column: Name of the column.
        work: The work that gives our number.
        printed: Number that the paper prints.
        claimed: Epsilon that the paper states.
    """

    group: str
    row: str
    column: str
    work: CellWork
    printed: float | None = None
    claimed: float | None = None

    @property
    def place(self) -> str:
        """Group, row and column, separated by commas."""
        return ", ".join(part for part in (self.group, self.row, self.column) if part)

    def matches(self, word: str) -> bool:
        """Tells whether a word selects this cell.

        Args:
            word: Word in lower case.

        Returns:
            True if it is the group or the row, or occurs in the column.
        """
        return word in (self.group.lower(), self.row.lower()) or word in self.column.lower()

    def digest(self, seed: int) -> str:
        """Computes the key of the outcome.

        Args:
            seed: Seed of the work.

        Returns:
            24 hexadecimal digits of a SHA-256 digest of tag, content and seed.
        """
        identity = json.dumps([self.work.tag, self.work.content, seed], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper.

    Attributes:
        name: Name on the command line, such as `ali-3`.
        title: Paper, number and subject.
        cells: The cells in the order of the rows.
        choices: What we chose where the paper leaves something open.
        value: Unit of the numbers.
        picture: Kind of picture: a key of `figures._PICTURES`.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    choices: tuple[str, ...]
    value: str = "accuracy, %"
    picture: str = "dots"

    def only(self, words: Sequence[str]) -> PaperTable:
        """Selects cells.

        Args:
            words: Words that each have to be the group or the row of a cell, or occur in its
                column. Upper and lower case are the same.

        Returns:
            The table with the cells that match every word.
        """
        matches = [
            cell for cell in self.cells if all(cell.matches(word.strip().lower()) for word in words)
        ]
        return replace(self, cells=tuple(matches))

    def with_settings(self, settings: Sequence[str]) -> PaperTable:
        """Applies settings to every cell.

        Args:
            settings: Settings of the form `section.key=value`.

        Returns:
            The table whose cells have these settings.
        """
        cells = tuple(replace(cell, work=cell.work.with_settings(settings)) for cell in self.cells)
        return replace(self, cells=cells) if settings else self
