"""Decides whether a node's ledger includes all that the node is known to have released.

A node refuses to start on a ledger that was set back, and says how its owner counts what is missing
(`dpfl ledger reconcile`, `reconciliation.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from dpfl.errors import DpflError
from dpfl.node.history.logged_releases import unlogged_loss
from dpfl.node.policy import NodePolicy
from dpfl.node.storage.task_log import TaskLog
from dpfl.privacy import Ledger
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.protocol.known_heads import KnownHeads
from dpfl.protocol.ledger_head import LedgerHead, SignedHead


def includes(ledger: Ledger, head: LedgerHead) -> bool:
    """Decides whether a ledger includes all that a head counts.

    Args:
        ledger: The node's ledger.
        head: A head that the node signed.

    Returns:
        Whether the ledger's chain went through the head, or took it over.
    """
    return ledger.includes(head.tail, head.start, dict(head.anchors))


def missing(ledger: Ledger, heads: Iterable[SignedHead]) -> list[SignedHead]:
    """Finds the heads that a ledger does not include.

    Args:
        ledger: The node's ledger.
        heads: Heads that the node signed.

    Returns:
        Those that the ledger lacks.
    """
    return [signed_head for signed_head in heads if not includes(ledger, signed_head.head)]


def is_behind(policy: NodePolicy, ledger: Ledger) -> bool:
    """Decides whether the node's own task log or log file is ahead of its ledger.

    Args:
        policy: The node's policy.
        ledger: The node's ledger.

    Returns:
        Whether either knows of releases that the ledger lacks.
    """
    if not ledger.contains(TaskLog.tail_in(policy.folder)):
        return True
    return bool(unlogged_loss(ledger, policy.folder))


def refuse_missing(policy: NodePolicy, ledger: Ledger, heads: Iterable[SignedHead]) -> None:
    """Refuses a ledger that lacks what the node is known to have released.

    Args:
        policy: The node's policy.
        ledger: The node's ledger.
        heads: Heads that the node signed.

    Raises:
        DpflError: The ledger lacks something.
    """
    if missing(ledger, heads) or is_behind(policy, ledger):
        raise DpflError(
            f"The ledger {ledger.path} lacks releases that this node signed. It is older than the "
            "last release, or it is a copy that continued separately. Stop every copy but one, "
            "then count the releases with: dpfl ledger reconcile "
            f"{policy.folder / 'policy.toml'}"
        )


def refuse_traces(policy: NodePolicy) -> None:
    """Refuses a node that has worked and has no ledger, because it would begin at zero.

    Args:
        policy: The node's policy.

    Raises:
        DpflError: There is no ledger, and other files show that the node has worked.
    """
    path = ledger_path(policy.ledgers, policy.name)
    if path.exists():
        return
    if traces := _traces(policy):
        raise DpflError(
            f"The ledger {path} is missing, but {', '.join(traces)} show that this node has spent "
            "budget. Restore the ledger from a copy, or count what the node signed with: dpfl "
            "ledger reconcile "
            f"{policy.folder / 'policy.toml'}"
        )


def _traces(policy: NodePolicy) -> list[str]:
    """Lists files that only a node that has worked leaves behind."""
    folder = policy.folder
    traces = [path.name for path in sorted(folder.glob("node.log*"))]
    if any((folder / "replies").glob("*.letter")):
        traces.append("replies")
    if TaskLog.tail_in(folder).links:
        traces.append("orders.sqlite")
    if KnownHeads(folder).own:
        traces.append("heads.json")
    if policy.witness and policy.witness.exists():
        traces.append(str(policy.witness))
    return traces
