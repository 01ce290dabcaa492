"""The folder of a node: one process at a time, and a ledger that holds all that it is known to have held."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.node.charter import Charter
from dpfl.node.held import digest
from dpfl.privacy import Ledger
from dpfl.privacy.ledger_chain import Tail
from dpfl.privacy.ledgers import ledger_path


def open_ledger(charter: Charter, data: Federation, seen: Tail) -> Ledger:
    """The node's one ledger, with the limit of its policy; made where nothing was ever seen of one."""
    path = ledger_path(charter.ledgers, charter.name)
    if seen.links and not path.exists():
        raise DpflError(
            f"The ledger {path} is gone, and what it held was spent: bring it back from a copy. Without one, this data has no "
            "budget left."
        )
    limits = charter.limits
    ledger = Ledger.open(path, charter.name, limits.unit, limits.neighbours, charter.limit, digest(data, limits.unit))
    if not ledger.holds(seen):
        ledger.close()
        raise DpflError(f"The ledger {path} is older than what was spent since: bring back the one that this node had last.")
    if ledger.limit != charter.limit:
        ledger.set_limit(charter.limit)
    return ledger


def locked(folder: Path) -> Any:
    """For the life of a node: two at one folder would both answer."""
    try:
        file = (folder / "node.lock").open("ab")
    except OSError as error:
        raise DpflError(f"The folder {folder} cannot be written ({error.strerror}); mend its permissions.") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise DpflError(f"Another process is at the node in {folder}; stop it first.") from None
    return file
