"""A folder of ledgers, each under its owner's name: one a client, or one for the whole federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpfl.privacy.ledger import Account, Ledger
from dpfl.privacy.limit import Limit

FEDERATION = "federation"
"""The owner of the ledger that all clients share."""


@dataclass(frozen=True)
class Ledgers:
    """Those that a run uses: of one unit and one kind of neighbours, for `data` (a digest an owner) where that is said."""

    folder: Path
    names: Sequence[str]
    unit: str
    neighbours: str
    limit: Limit | None = None
    data: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.names)

    def path(self, number: int) -> Path:
        return ledger_path(self.folder, self.names[number])

    def open(self, number: int) -> Ledger:
        data = self.data[number] if self.data else ""
        return Ledger.open(self.path(number), self.names[number], self.unit, self.neighbours, self.limit, data)

    def read(self, number: int) -> Ledger:
        """Of a run that has ended: nothing is written, and none is made."""
        ledger = Ledger.read(self.path(number))
        ledger.refuse_other(Account(self.names[number], self.unit, self.neighbours))
        return ledger


def ledger_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.sqlite"
