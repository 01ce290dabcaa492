"""The parts of a running node: its policy, key, data, records, and the checks made of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.data import Federation
from dpfl.node.checks.policy_checker import PolicyChecker
from dpfl.node.history.ledger_history import LedgerHistory
from dpfl.node.history.witness import Witness
from dpfl.node.policy import NodePolicy
from dpfl.node.requests import RequestReader
from dpfl.node.secure_sum import SecureSumClient
from dpfl.node.storage.folder import open_ledger
from dpfl.node.storage.journal import Journal
from dpfl.node.storage.task_log import TaskLog
from dpfl.privacy import Ledger
from dpfl.protocol.keys import public_key_hex


@dataclass
class NodeState:
    """The parts of one running node.

    Attributes:
        policy: What the owner allows.
        key: The key that signs the node's messages.
        data: The node's data, as a federation of one client.
        log: Runs that were joined, tasks that were accepted, replies that were sent.
        journal: The node's log file.
        witness: The witness file of the policy, if it names one.
        counts: What happened since the start, for monitoring.
        requests: Reads messages and writes answers.
        checker: Compares runs and tasks with the policy.
        history: Notices a ledger that was set back.
        sums: The node's part in secure sums.
    """

    policy: NodePolicy
    key: Ed25519PrivateKey
    data: Federation
    log: TaskLog
    journal: Journal
    witness: Witness | None = None
    counts: Counter[str] = field(default_factory=Counter)
    requests: RequestReader = field(init=False)
    checker: PolicyChecker = field(init=False)
    history: LedgerHistory = field(init=False)
    sums: SecureSumClient = field(init=False)

    def __post_init__(self) -> None:
        public_key = public_key_hex(self.key.public_key())
        self.requests = RequestReader(self.policy, self.key)
        self.checker = PolicyChecker(self.policy, self.data, public_key)
        self.history = LedgerHistory(self.policy, public_key, self.witness)
        self.sums = SecureSumClient(self.policy.name, self.key)

    def open_ledger(self) -> Ledger:
        """Opens the node's ledger.

        Returns:
            The ledger; the caller closes it.

        Raises:
            DpflError: The ledger is gone, damaged, or older than the task log.
        """
        return open_ledger(self.policy, self.data, self.log.ledger_tail)
