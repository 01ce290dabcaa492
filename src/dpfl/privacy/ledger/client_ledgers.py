"""A folder of ledgers, each under its owner's name: one a client, or one for the whole
federation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import Event
from dpfl.privacy.ledger.ledger import Ledger, LedgerAccount, check_same_kind
from dpfl.privacy.ledger.limit import Limit, SubLimit

FEDERATION = "federation"
"""The owner of the ledger that all clients share."""

MAX_LISTED_NAMES = 3
"""Names that a sentence lists."""


@dataclass(frozen=True)
class ClientLedgers:
    """Those that a run uses: of one unit and one kind of neighbours, for `data` (a digest an owner)
    where that is said.
    """

    folder: Path
    names: Sequence[str]
    unit: str
    neighbours: str
    limit: Limit | None = None
    data: Sequence[str] = ()
    public: Sequence[str] = ()
    """Digests of data that is nobody's secret in this run."""
    shares: Sequence[SubLimit] = ()
    """Limits on parts of what each owner spends."""

    def __len__(self) -> int:
        return len(self.names)

    def path(self, number: int) -> Path:
        return ledger_path(self.folder, self.names[number])

    def open(self, number: int) -> Ledger:
        data = self.data[number] if self.data else ""
        return Ledger.open(
            self.path(number), self.names[number], self.unit, self.neighbours, self.limit, data
        )

    def read(self, number: int) -> Ledger:
        """Of a run that has ended: nothing is written, and none is made."""
        ledger = Ledger.read(self.path(number))
        ledger.check_account(LedgerAccount(self.names[number], self.unit, self.neighbours))
        return ledger

    def check(self) -> None:
        """Before anything is written: the ledgers that lie here and those of this run add up, and
        none of them is lost.
        """
        if not self.names:
            return
        found = [
            (path, *_seen(path))
            for path in sorted(self.folder.glob("*.sqlite"))
            if path.name != "metrics.sqlite"
        ]
        federal = self.names[0] == FEDERATION
        for path, account, _ in found:
            if (account.owner == FEDERATION) != federal:
                raise DpflError(
                    f"The ledger {path} is {'one client' if federal else 'the federation'}'s where "
                    "this run has "
                    f"{'one for the federation' if federal else 'one a client'}; what it counts "
                    "would be missing from the "
                    "statement: keep another folder of ledgers for this run (privacy.ledger)."
                )
            check_same_kind(path, account, LedgerAccount(account.owner, self.unit, self.neighbours))
            self._refuse_twice(path)
        used = [account.owner for _, account, spent in found if spent]
        lost = [name for number, name in enumerate(self.names) if not self.path(number).exists()]
        if used and lost:
            raise DpflError(
                f"There is no ledger of {list_names(lost)} in {self.folder}, "
                f"where {list_names(used)} paid before. Bring it back if it "
                "is lost, since what it held was spent; for a client that never paid: dpfl ledger "
                f"new {self.folder} {lost[0]}"
            )

    def _refuse_twice(self, path: Path) -> None:
        """Data that one ledger counts is not another's to begin anew, and not public."""
        known = (
            path.stem in self.names
        )  # whether its data is that client's own is asked where it is opened
        claims = [("a public client", data) for data in self.public]
        claims += [] if known else list(zip(self.names, self.data, strict=False))
        if not claims:
            return
        with closing(Ledger.read(path)) as ledger:
            whose = next((whose for whose, data in claims if ledger.counts_data(data)), None)
        if whose:
            raise DpflError(
                f"The ledger {path} counts the data of {whose}: what it holds was spent. Call that "
                f"client {path.stem} "
                "(data.names), or keep other ledgers for this run (privacy.ledger)."
            )

    def spending(self) -> list[dict[Event, int]]:
        """By owner; nothing where there is no ledger yet."""
        paths = [self.path(number) for number in range(len(self.names))]
        return [_seen(path)[1] if path.exists() else {} for path in paths]


def _seen(path: Path) -> tuple[LedgerAccount, dict[Event, int]]:
    with closing(Ledger.read(path)) as ledger:
        return ledger.account, ledger.spending()


def list_names(names: Sequence[str]) -> str:
    """The first few of them."""
    return ", ".join(names[:MAX_LISTED_NAMES]) + (
        f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    )


def ledger_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.sqlite"
