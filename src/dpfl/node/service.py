"""A node at work: one message in, one signed message out.

`Service.answer` is all that a transport calls. It never raises: whatever is wrong becomes a signed
refusal with one of a few fixed reasons (`dpfl.refusals`), and details go to the node's own log.

Every message is checked in this order. Whatever fails is refused there, and nothing that follows
happens.

1. *Signature.* A key that the policy names signed the bytes, and they are no larger than the policy
   allows (`requests.py`).
2. *Routing.* The message is for this node, of a kind that it knows, with exactly the fields of that
   kind.
3. *History.* The ledger includes every head that this node is known to have signed
   (`history/ledger_history.py`). If it does not, the disk was set back, and all work ends.
4. *Run.* The run was proposed by the same owner, was joined, and is still allowed by the policy
   (`checks/policy_checker.py`).
5. *Task.* The parts of the task, its vectors and its cost are allowed, and the run announced the
   release when it was proposed (`task_execution.py`).

Only then is anything debited, and only after the debit is on disk does anything that depends on the
data leave the node:

    received -> checked -> accepted (task log) -> debited (ledger) -> trained, clipped, noise added
             -> head of the ledger signed -> reply on disk -> reply sent

docs/deployment.md ("Why a node refuses") lists who refuses, with which codes, and what has been
debited by then: before the task is accepted nothing, and after training the release, although
nothing is sent.

The states of a task, and what happens to it after a crash, are described in `storage/task_log.py`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.node import policy as policies
from dpfl.node.build_runner import run_sub_limits
from dpfl.node.checks.budget_checks import affordable_releases
from dpfl.node.checks.readiness import refuse_other_key
from dpfl.node.history.ledger_history import begin_start
from dpfl.node.history.rollback import refuse_traces
from dpfl.node.history.witness import Witness
from dpfl.node.load_data import load_node_data, schema_digest
from dpfl.node.policy import NodePolicy
from dpfl.node.requests import ROUTING_FIELDS, Request
from dpfl.node.state import NodeState
from dpfl.node.statement import statement
from dpfl.node.storage.folder import lock_folder, open_ledger
from dpfl.node.storage.journal import Journal
from dpfl.node.storage.task_log import RunRecord, TaskLog
from dpfl.node.task_execution import TaskExecution
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.privacy.ledger.limit import SubLimit
from dpfl.protocol import messages
from dpfl.protocol.head_words import fitting
from dpfl.protocol.keys import load_private, public_key_hex
from dpfl.protocol.proposal import Proposal, proposal_from_words
from dpfl.refusals import ProtocolError, RefusalReason

OPTIONAL_FIELDS = {"join": {"heads"}, "ask-statement": {"heads"}}
"""Fields that a message may have or not: heads of ledgers that the run's owner remembers."""
VERSION = importlib.metadata.version("dpfl")

Handler = Callable[[Request], bytes]


class Service:
    """A node's service. It answers one message at a time.

    Example:
        ```python
        service = Service.open(Path("/srv/hospital/policy.toml"))
        answer = service.answer(message)
        ```
    """

    def __init__(self, state: NodeState, lock: Any) -> None:
        self._state, self._lock = state, lock
        self._tasks = TaskExecution(state)
        self._handlers: dict[str, tuple[tuple[str, ...], Handler]] = {
            "ping": ((), self._ping),
            "join": (("proposal",), self._join),
            "work": (("task",), self._work),
            "ask-statement": ((), self._statement),
            "card": (("number",), self._secure_sum),
            "meet": (("cards",), self._secure_sum),
            "survivors": (("survivors",), self._secure_sum),
            "votes": (("votes",), self._secure_sum),
        }
        self.counts = state.counts
        """What happened since the start, for monitoring."""

    @property
    def policy(self) -> NodePolicy:
        """The node's policy."""
        return self._state.policy

    @property
    def data(self) -> Federation:
        """The node's data, as a federation of one client."""
        return self._state.data

    @classmethod
    def open(cls, policy_file: Path) -> Service:
        """Starts a node.

        Args:
            policy_file: The policy file, or the folder that contains it.

        Returns:
            The service. It holds the lock of the node's folder until it is closed.

        Raises:
            DpflError: Anything of the node's own is not as it should be: the policy, the key, the
                data, the ledger, or the record of what the node signed before.
        """
        policy = policies.read(policy_file)
        key, lock = load_private(policy.key), lock_folder(policy.folder)
        try:
            state = _open_state(policy, key)
        except BaseException:
            lock.close()
            raise
        torch.set_num_threads(1)  # the last bits of a client's sums depend on the threads
        state.journal.write("started", node=policy.name, version=VERSION)
        return cls(state, lock)

    def answer(self, data: bytes) -> bytes:
        """Answers a message. This never raises.

        Args:
            data: The message as it came, from anybody.

        Returns:
            A signed message: what was asked for, or a refusal.
        """
        request = Request(messages.digest(data))
        self.counts["letters"] += 1
        try:
            request = self._state.requests.read(data)
            handler = self._handler(request)
            if request.kind != "ping":
                self._state.history.refuse_rolled_back()
            return handler(request)
        except ProtocolError as error:
            return self._refuse(request, error.reason)
        except Exception as error:
            self._state.journal.failure(error, run=request.run, order=request.task_name)
            from_ledger = isinstance(error, DpflError)
            reason = RefusalReason.LEDGER if from_ledger else RefusalReason.FAILED
            return self._refuse(request, reason)

    def _handler(self, request: Request) -> Handler:
        fields, handler = self._handlers.get(request.kind, ((), None))
        if handler is None:
            raise ProtocolError(RefusalReason.UNKNOWN_MESSAGE)
        optional = OPTIONAL_FIELDS.get(request.kind, set())
        if request.fields.keys() - optional != {*ROUTING_FIELDS, *fields}:
            raise ProtocolError(RefusalReason.BAD_WORDS)
        return handler

    def _refuse(self, request: Request, reason: RefusalReason) -> bytes:
        self.counts[f"refused {reason}"] += 1
        routing = {"kind": request.kind, "run": request.run, "order": request.task_name}
        self._state.journal.write("refused", **routing, reason=str(reason))
        return self._state.requests.refusal(request, reason)

    def _ping(self, request: Request) -> bytes:
        return self._state.requests.answer(request, {"kind": "pong", "version": VERSION})

    def _join(self, request: Request) -> bytes:
        """Joins a run: compares histories, checks the run, and declares a size."""
        state, run = self._state, request.run
        proposal = proposal_from_words(request.fields["proposal"])
        heads = request.fields.get("heads", [])
        with closing(state.open_ledger()) as ledger:
            state.history.take(heads, ledger, request.owner, proposal.federation)
        record = self._run_record(request, proposal)
        state.checker.check_run(proposal)
        is_new, size = record is None, record.size if record else self._declared_size()
        state.checker.check_model(proposal, size)
        with closing(state.open_ledger()) as ledger:
            if is_new and ledger.spending_within(SubLimit(state.policy.limit, run=run)):
                # The tasks of that run are lost, so it is over.
                raise ProtocolError(RefusalReason.WRONG_RUN)
            sub_limits = run_sub_limits(state.policy, run, proposal)
            remaining = affordable_releases(ledger, run, proposal, state.policy.limit, sub_limits)
            head = state.history.sign(ledger, state.key)
        if proposal.events and not remaining:
            raise ProtocolError(RefusalReason.OVER_BUDGET)
        if is_new:
            state.log.join(run, RunRecord(request.owner, proposal.to_words(), size))
        state.history.joined_runs.add(run)
        about = {"run": run, "system": proposal.system, "model": proposal.model}
        state.journal.write("joined", **about, size=size, left=remaining)
        other_heads = state.history.others(proposal.federation, heads)
        return state.requests.answer(
            request,
            {
                "kind": "joined",
                "size": size,
                "left": remaining,
                "schema": schema_digest(state.data),
                "version": VERSION,
                "ledger_head": head.to_words(),
                "heads": fitting(other_heads),
            },
        )

    def _run_record(self, request: Request, proposal: Proposal) -> RunRecord | None:
        """Finds the record of a run that was joined before. It must be the same run of the same
        owner.
        """
        record = self._state.log.run(request.run)
        if record is None:
            return None
        if record.owner != request.owner or record.proposal != proposal.to_words():
            raise ProtocolError(RefusalReason.WRONG_RUN)
        return record

    def _declared_size(self) -> int:
        policy = self._state.policy
        return policy.declared_size(self._state.data.count_units(policy.limits.unit)[0])

    def _joined_run(self, request: Request) -> tuple[Proposal, int]:
        """Finds the proposal of a run that was joined, and the size that was declared to it."""
        record = self._state.log.run(request.run)
        if record is None:
            raise ProtocolError(RefusalReason.NOT_JOINED)
        if record.owner != request.owner:
            raise ProtocolError(RefusalReason.WRONG_RUN)
        return proposal_from_words(record.proposal), record.size

    def _work(self, request: Request) -> bytes:
        proposal, size = self._joined_run(request)
        return self._tasks.answer(request, proposal, size)

    def _statement(self, request: Request) -> bytes:
        state = self._state
        proposal, _ = self._joined_run(request)
        heads = request.fields.get("heads", [])
        with closing(state.open_ledger()) as ledger:
            state.history.take(heads, ledger, request.owner, proposal.federation)
            signed_statement = statement(ledger, state.policy.limit, request.run, state.key)
        return state.requests.answer(request, {"kind": "statement", "statement": signed_statement})

    def _secure_sum(self, request: Request) -> bytes:
        """Takes a step of a secure sum other than the masked input. A repeated request gets the
        same answer again.
        """
        state, run = self._state, request.run
        proposal, _ = self._joined_run(request)
        if replay := state.sums.replay(run, request.digest):
            state.journal.write("sent again", run=run, order=request.task_name)
            return replay
        state.checker.check_run(proposal)
        group = state.checker.group(run, request.owner, proposal)
        fields, arrays = state.sums.step(request, group)
        answer = state.requests.answer(request, fields, arrays)
        state.sums.keep(run, request.digest, answer)
        state.journal.write(fields["kind"], run=run, order=request.task_name)
        return answer

    def figures(self) -> dict[str, float]:
        """Reads the node's figures for monitoring. This may be called from any thread.

        Returns:
            Epsilon spent and allowed, delta, and what happened since the start.
        """
        policy, limit = self._state.policy, self._state.policy.limit
        with closing(Ledger.read(ledger_path(policy.ledgers, policy.name))) as ledger:
            epsilon = accountant(limit.accountant).epsilon(ledger.spending(), limit.delta)
        return {
            "epsilon spent": epsilon,
            "epsilon allowed": limit.epsilon,
            "delta": limit.delta,
            **self.counts,
        }

    def note(self, event: str, **words: Any) -> None:
        """Writes a line for the transport into the node's log.

        Args:
            event: What happened.
            **words: Details, none of them of the data.
        """
        self._state.journal.write(event, **words)

    def close(self) -> None:
        """Ends the node. Further calls do nothing."""
        if self._lock.closed:
            return
        self._tasks.close()
        self._state.journal.write("stopped", node=self._state.policy.name)
        self._state.journal.close()
        self._state.log.close()
        self._lock.close()


def _open_state(policy: NodePolicy, key: Ed25519PrivateKey) -> NodeState:
    """Opens all that a node needs. A part that is not in order raises a DpflError."""
    refuse_other_key(policy, public_key_hex(key.public_key()))
    policy.randomness  # noqa: B018  refused here, where it cannot be had
    data = load_node_data(policy)
    refuse_traces(policy)
    log = TaskLog(policy.folder)
    witness: Witness | None
    with closing(open_ledger(policy, data, log.ledger_tail)) as ledger:
        witness = begin_start(policy, ledger, key)
        log.see(ledger.tail)
    journal = Journal(policy.folder / "node.log")
    return NodeState(policy, key, data, log, journal, witness)
