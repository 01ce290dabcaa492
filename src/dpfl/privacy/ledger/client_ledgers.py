"""The ledgers of a run: one file per client, or one file for the whole federation.

    >>> ledgers = ClientLedgers(folder, ["hospital-a", "hospital-b"], "sample", ADD_REMOVE)
    >>> ledgers.check()  # refuses a folder whose ledgers do not add up
    >>> with closing(ledgers.open(0)) as ledger:  # creates hospital-a.sqlite if there is none
    ...     print(ledger.epsilon(delta=1e-5))
    0.0

A client pays from a ledger of its own where it adds the noise itself, alone or as a share in a
secure sum. Where the server adds the noise to the sum of a round, every release concerns all
clients, and the one ledger of `FEDERATION` pays for them.

A ledger outlives the run: several runs on the same data pay from one file, and epsilon is computed
from the events of all of them. `ClientLedgers.check` guards this before a run writes anything. It
refuses

- a folder that has ledgers of clients where this run has one for the federation, or the reverse;
- a ledger of another unit or neighbouring relation;
- a client without a ledger where others have paid before, because its ledger may have been lost;
- a ledger that counts data which this run has under another name, or calls public.

What a ledger holds, and how a debit reaches the disk, is in `ledger.py`.
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

METRICS = "metrics.sqlite"
"""The file of a run's metrics, which has the ending of a ledger and may lie beside ledgers."""

MAX_LISTED_NAMES = 3
"""Names that a sentence lists."""


def ledger_files(folder: Path, pattern: str = "*.sqlite") -> list[Path]:
    """Lists the ledgers in a folder.

    Args:
        folder: The folder.
        pattern: Which files may be ledgers.

    Returns:
        Their files, sorted.
    """
    return [path for path in sorted(folder.glob(pattern)) if path.name != METRICS]


@dataclass(frozen=True)
class ClientLedgers:
    """The ledgers of one run, all of one unit and one neighbouring relation.

    Attributes:
        folder: The folder.
        names: The owners.
        unit: The unit.
        neighbours: The neighbouring relation.
        limit: The limit of new ledgers.
        data: A digest of each owner's data; empty if unknown.
        public: Digests of data that is nobody's secret in this run.
        shares: Limits on parts of what each owner spends.
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
        """Names an owner's file.

        Args:
            number: The owner's number.

        Returns:
            The path.
        """
        return ledger_path(self.folder, self.names[number])

    def open(self, number: int) -> Ledger:
        """Opens an owner's ledger, and creates it if there is none.

        Args:
            number: The owner's number.

        Returns:
            The ledger.
        """
        data = self.data[number] if self.data else ""
        return Ledger.open(
            self.path(number), self.names[number], self.unit, self.neighbours, self.limit, data
        )

    def read(self, number: int) -> Ledger:
        """Opens an owner's ledger to read, after a run has ended.

        Args:
            number: The owner's number.

        Returns:
            The ledger. Nothing is written, and no ledger is created.
        """
        ledger = Ledger.read(self.path(number))
        ledger.check_account(LedgerAccount(self.names[number], self.unit, self.neighbours))
        return ledger

    def check(self) -> None:
        """Checks, before anything is written, that the ledgers in the folder and those of this run
        belong together.

        Raises:
            DpflError: If a ledger is lost, counts another unit, or counts data under another name.
        """
        if not self.names:
            return
        ledgers = [(path, *_read_spending(path)) for path in ledger_files(self.folder)]
        federal = self.names[0] == FEDERATION
        for path, account, _ in ledgers:
            if (account.owner == FEDERATION) != federal:
                raise DpflError(
                    f"The ledger {path} is for {'one client' if federal else 'the federation'}, "
                    "but this run has "
                    f"{'one for the federation' if federal else 'one per client'}. What it counts "
                    "would be missing from the statement: keep another folder of ledgers for this "
                    "run (privacy.ledger)."
                )
            check_same_kind(path, account, LedgerAccount(account.owner, self.unit, self.neighbours))
            self._refuse_twice(path)
        spending_owners = [account.owner for _, account, spending in ledgers if spending]
        missing = [name for number, name in enumerate(self.names) if not self.path(number).exists()]
        if spending_owners and missing:
            raise DpflError(
                f"There is no ledger of {list_names(missing)} in {self.folder}, "
                f"where {list_names(spending_owners)} paid before. Bring it back if it "
                "is lost, since what it held was spent; for a client that never paid: dpfl ledger "
                f"new {self.folder} {missing[0]}"
            )

    def _refuse_twice(self, path: Path) -> None:
        """Refuses data that one ledger counts as another owner's new data, or as public."""
        # Whether the data of a client of this run is its own is checked where its ledger opens.
        own = path.stem in self.names
        claims = [("a public client", data) for data in self.public]
        claims += [] if own else list(zip(self.names, self.data, strict=False))
        if not claims:
            return
        with closing(Ledger.read(path)) as ledger:
            whose = next((whose for whose, data in claims if ledger.counts_data(data)), None)
        if whose:
            raise DpflError(
                f"The ledger {path} counts the data of {whose}: what it holds was spent. Name that "
                f"client {path.stem} (data.names), or use another ledger folder for this run "
                "(privacy.ledger)."
            )

    def spending(self) -> list[dict[Event, int]]:
        """Sums the debits of each owner.

        Returns:
            The count of each event, by owner; nothing where there is no ledger yet.
        """
        paths = [self.path(number) for number in range(len(self.names))]
        return [_read_spending(path)[1] if path.exists() else {} for path in paths]


def _read_spending(path: Path) -> tuple[LedgerAccount, dict[Event, int]]:
    with closing(Ledger.read(path)) as ledger:
        return ledger.account, ledger.spending()


def list_names(names: Sequence[str]) -> str:
    """Lists the first few names.

    Args:
        names: The names.

    Returns:
        Three names, and how many more there are.
    """
    return ", ".join(names[:MAX_LISTED_NAMES]) + (
        f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    )


def ledger_path(folder: Path, name: str) -> Path:
    """Names the file of a ledger.

    Args:
        folder: The folder.
        name: The owner.

    Returns:
        The path.
    """
    return folder / f"{name}.sqlite"
