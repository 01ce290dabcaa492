"""The folder of a node: one process at a time, and a ledger that holds all that it is known to have
held.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.node.load_data import digest
from dpfl.node.policy import NodePolicy
from dpfl.privacy import Ledger
from dpfl.privacy.ledger.chain import ChainTail
from dpfl.privacy.ledger.client_ledgers import ledger_path


def open_own(charter: NodePolicy, data: Federation, path: Path) -> Ledger:
    """A ledger of this node, for its data, at a path; made where there is none."""
    limits = charter.limits
    return Ledger.open(
        path, charter.name, limits.unit, limits.neighbours, charter.limit, digest(data, limits.unit)
    )


def open_ledger(charter: NodePolicy, data: Federation, seen: ChainTail) -> Ledger:
    """The node's one ledger, with the limit of its policy; made where nothing was ever seen of
    one.
    """
    path, policy = ledger_path(charter.ledgers, charter.name), charter.folder / "policy.toml"
    if seen.links and not path.exists():
        raise DpflError(
            f"The ledger {path} is gone, and what it held was spent: bring it back from a copy, or "
            "count what was signed with: "
            f"dpfl ledger reconcile {policy}"
        )
    ledger = open_own(charter, data, path)
    if not ledger.contains(seen):
        ledger.close()
        raise DpflError(
            f"The ledger {path} is older than what was spent since: bring back the one that this "
            "node had last, or count what "
            f"was signed with: dpfl ledger reconcile {policy}"
        )
    if ledger.limit != charter.limit:
        ledger.set_limit(charter.limit)
    return ledger


def lock_folder(folder: Path) -> Any:
    """For the life of a node: two at one folder would both answer."""
    try:
        file = (folder / "node.lock").open("ab")
    except OSError as error:
        raise DpflError(
            f"The folder {folder} cannot be written ({error.strerror}); mend its permissions."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise DpflError(f"Another process is at the node in {folder}; stop it first.") from None
    return file
