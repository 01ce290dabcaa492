"""Decides what a node refuses before anything is debited: runs and tasks that its policy forbids.

A `PolicyChecker` is asked on every step of a task's way, and each refusal is a `ProtocolError`
whose `RefusalReason` is sent to the server:

| when | asked | what has been debited |
|---|---|---|
| a run is proposed, and again with each of its tasks | `check_run` | nothing |
| a run is joined, and again when its runner is built | `check_model` | nothing |
| a task arrives | `check_task`, `check_vectors` | nothing |
| keys for a secure sum are asked for | `group` | nothing |

The checks themselves are in `run_checks.py` and `task_checks.py`. The budget is not checked here:
`budget_checks.py` asks whether there is room, and the ledger decides when it writes the debit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpfl.client.task import ClientTask
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.models import Layout
from dpfl.models.descriptions import Buildable
from dpfl.node.checks.proposed_model import UNUSABLE_MODEL, ProposedModel
from dpfl.node.checks.run_checks import (
    model_violations,
    refuse_first,
    run_violations,
    secure_sum_violations,
)
from dpfl.node.checks.task_checks import (
    batch_violations,
    query_violations,
    release_violations,
    task_violations,
    vector_violations,
)
from dpfl.node.policy import NodePolicy
from dpfl.protocol.proposal import Proposal
from dpfl.refusals import ProtocolError, RefusalReason
from dpfl.secagg import SumGroup


@dataclass(frozen=True)
class PolicyChecker:
    """Compares runs and tasks with a node's policy and data.

    Attributes:
        policy: The node's policy.
        data: The node's data, as a federation of one client.
        public_key: The node's own public key, in hexadecimal digits.
    """

    policy: NodePolicy
    data: Federation
    public_key: str = ""

    def check_run(self, proposal: Proposal) -> None:
        """Refuses a run that the policy does not allow, or that does not fit the data.

        Args:
            proposal: The run as its owner proposes it.

        Raises:
            ProtocolError: The run is refused.
        """
        refuse_first(run_violations(self.policy, self.data, proposal))
        refuse_first(secure_sum_violations(self.policy, self.public_key, proposal))

    def check_model(self, proposal: Proposal, size: int) -> Buildable:
        """Refuses a model that does not fit the data, a message or the memory.

        Args:
            proposal: The run, which `check_run` has accepted.
            size: The number of units that the node declared; the memory is judged by it.

        Returns:
            The model.

        Raises:
            ProtocolError: The model is refused.
        """
        try:
            proposed_model = ProposedModel.of(proposal, self.data)
            refuse_first(model_violations(self.policy, proposed_model, size))
        except UNUSABLE_MODEL:
            raise ProtocolError(RefusalReason.MODEL_NOT_ALLOWED) from None
        return proposed_model.model

    def check_task(self, task: ClientTask, proposal: Proposal, layout: Layout, size: int) -> None:
        """Refuses a task that the policy or the run does not allow.

        Args:
            task: The task as it came.
            proposal: The run that the node joined.
            layout: The layout of the run's model.
            size: The number of units that the node declared when it joined.

        Raises:
            ProtocolError: The task is refused.
        """
        try:
            refuse_first(task_violations(self.policy, task, proposal, layout))
            refuse_first(batch_violations(self.policy, self.data, task, size))
            if release := task.own_release:
                refuse_first(release_violations(self.policy, task, release, size))
            if task.query:
                refuse_first(query_violations(self.policy, self.data, task))
        except DpflError:  # its parts do not go together
            raise ProtocolError(RefusalReason.BAD_WORDS) from None

    def check_vectors(
        self, task: ClientTask, vectors: Mapping[str, np.ndarray], layout: Layout
    ) -> None:
        """Refuses a model that no honest server sends.

        Args:
            task: The task that the vectors came with.
            vectors: The model, and what is added to its gradients, if anything.
            layout: The model's layout.

        Raises:
            ProtocolError: The reason is `WEIGHTS_TOO_LARGE`.
        """
        refuse_first(vector_violations(self.policy, task, vectors, layout))

    def group(self, run: str, owner: str, proposal: Proposal) -> SumGroup:
        """Names the members of a run's secure sums.

        Args:
            run: The run.
            owner: The public key of the run's owner.
            proposal: The run, which `check_run` has accepted.

        Returns:
            The members, their keys and the thresholds.

        Raises:
            ProtocolError: The run has no secure sums.
        """
        terms = proposal.sums
        if terms is None:
            raise ProtocolError(RefusalReason.UNMASKED)
        identities = dict(zip(proposal.federation, proposal.keys, strict=True))
        return SumGroup(proposal.together(run, owner), identities, terms.survivors, terms.colluders)
