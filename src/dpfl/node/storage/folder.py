"""The folder of a node: locked by one process at a time, with the node's one ledger in it."""

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


def open_ledger_at(policy: NodePolicy, data: Federation, path: Path) -> Ledger:
    """Opens or creates a ledger for this node's data at a path.

    Args:
        policy: The node's policy.
        data: The node's data. A new ledger is bound to it by its first debit.
        path: The file.

    Returns:
        The ledger; the caller closes it.

    Raises:
        DpflError: The ledger is damaged, or counts for somebody or something else.
    """
    limits = policy.limits
    return Ledger.open(
        path, policy.name, limits.unit, limits.neighbours, policy.limit, digest(data, limits.unit)
    )


def open_ledger(policy: NodePolicy, data: Federation, tail: ChainTail) -> Ledger:
    """Opens the node's ledger, with the limit of its policy.

    Args:
        policy: The node's policy.
        data: The node's data.
        tail: The last row that the ledger is known to have had. Only where there is none may a
            ledger be created.

    Returns:
        The ledger; the caller closes it.

    Raises:
        DpflError: The ledger is gone, damaged, or older than `tail`.
    """
    path, policy_file = ledger_path(policy.ledgers, policy.name), policy.folder / "policy.toml"
    if tail.links and not path.exists():
        raise DpflError(
            f"The ledger {path} is missing, and its releases still count: restore it from a copy, "
            f"or count what the node signed with: dpfl ledger reconcile {policy_file}"
        )
    ledger = open_ledger_at(policy, data, path)
    if not ledger.contains(tail):
        ledger.close()
        raise DpflError(
            f"The ledger {path} is older than this node's last release: restore the latest one, or "
            f"count what the node signed with: dpfl ledger reconcile {policy_file}"
        )
    if ledger.limit != policy.limit:
        ledger.set_limit(policy.limit)
    return ledger


def lock_folder(folder: Path) -> Any:
    """Locks a node's folder, because two processes on one folder would both answer.

    Args:
        folder: The folder.

    Returns:
        The locked file; closing it releases the lock.

    Raises:
        DpflError: Another process has the lock, or the folder cannot be written.
    """
    try:
        file = (folder / "node.lock").open("ab")
    except OSError as error:
        raise DpflError(
            f"The folder {folder} cannot be written ({error.strerror}); fix its permissions."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise DpflError(f"Another process runs the node in {folder}; stop it first.") from None
    return file
