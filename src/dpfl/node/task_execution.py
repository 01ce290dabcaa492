"""Executes tasks at a node: checks, plans, accepts, debits, trains, signs, stores and answers.

`TaskExecution.answer` reads like the life of a task. Its states on disk, and what a crash in each
of them means, are described in `storage/task_log.py`.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask
from dpfl.errors import DpflError
from dpfl.node.build_runner import build_runner, run_sub_limits
from dpfl.node.checks.budget_checks import affordable_releases, is_affordable
from dpfl.node.requests import Request
from dpfl.node.state import NodeState
from dpfl.node.storage.task_log import TaskRecord
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import Event, encode
from dpfl.privacy.ledger.limit import SubLimit
from dpfl.protocol import task_messages
from dpfl.protocol.ledger_head import SignedHead
from dpfl.protocol.proposal import Proposal
from dpfl.refusals import ProtocolError, RefusalReason
from dpfl.secagg import SumId

FREE_BYTES = 64 << 20
"""Bytes that must stay free on the disk."""
MOST_FAILURES = 3
"""Failures of training that are reported per run. That training failed may depend on the data, so
later tasks of the run are refused without being executed.
"""


@dataclass(frozen=True)
class _CheckedTask:
    """A task that may be executed, with all that its execution needs."""

    request: Request
    record: TaskRecord
    task: ClientTask
    runner: ClientRunner
    vector: Tensor
    correction: Tensor | None
    sum_id: SumId | None
    """The secure sum that the task is for."""


class TaskExecution:
    """Executes the tasks of a node. One run at a time has its model in memory."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._failures: Counter[str] = Counter()
        self._runner: tuple[str, ClientRunner] | None = None

    def answer(self, request: Request, proposal: Proposal, size: int) -> bytes:
        """Executes a task, or replays the stored reply of one that came before.

        Args:
            request: A message of the kind "work".
            proposal: The run, as the node joined it.
            size: The number of units that the node declared to it.

        Returns:
            The signed reply, which is on disk.

        Raises:
            ProtocolError: The task is refused.
            DpflError: The ledger cannot be used; nothing was released, and the same task may come
                again.
        """
        start = time.monotonic()
        task = task_messages.task_from_words(request.fields["task"])
        record = TaskRecord(request.run, request.task_name, request.digest, task.round)
        if replay := self._state.log.reply(record):
            self._state.journal.write("sent again", run=record.run, order=record.name)
            return replay
        work = self._check(request, record, task, proposal, size)
        work = self._plan(work, proposal, size)
        answer = self._execute(work)
        if interval := self._state.policy.tell.every:
            time.sleep(interval - (time.monotonic() - start) % interval)
        return answer

    def _check(
        self, request: Request, record: TaskRecord, task: ClientTask, proposal: Proposal, size: int
    ) -> _CheckedTask:
        """Refuses whatever the policy, the run or the node's state does not allow. Nothing is
        written.
        """
        state, arrays = self._state, request.arrays
        if record.name != task_messages.task_name(task, state.sums.session(record.run)):
            raise ProtocolError(
                RefusalReason.NO_KEYS if task.noise_shares else RefusalReason.BAD_WORDS
            )
        if self._failures[record.run] >= MOST_FAILURES:
            raise ProtocolError(RefusalReason.FAILED)
        state.checker.check_run(proposal)  # the policy may have changed since the run was joined
        runner = self._runner_of(record.run, proposal, size)
        state.checker.check_task(task, proposal, runner.model.layout, size)
        vector, correction = _vectors(arrays, task, runner)
        state.checker.check_vectors(task, arrays, runner.model.layout)
        sum_id = None
        if task.noise_shares:
            sum_id = state.sums.expect(record.run, task, arrays["model"])
        self._check_disk(arrays)
        state.history.refuse_unjoined(record.run, runner.ledger(proposal.client))
        return _CheckedTask(request, record, task, runner, vector, correction, sum_id)

    def _plan(self, work: _CheckedTask, proposal: Proposal, size: int) -> _CheckedTask:
        """Refuses a release that the run did not announce, or that the budget has no room for."""
        cost = work.task.cost(size)
        if cost is None:
            return work
        event, count = cost
        record = replace(work.record, event=event, count=count)
        ledger = work.runner.ledger(proposal.client)
        horizon = self._horizon(ledger, record, event, proposal)
        return replace(work, record=record, task=replace(work.task, horizon=horizon))

    def _horizon(self, ledger: Ledger, record: TaskRecord, event: Event, proposal: Proposal) -> int:
        """Counts how many releases of this kind the run has left.

        Before the first release of a run, the most that it will release of every kind is written
        into the ledger: what was proposed, as far as the limits leave room for it.
        """
        run, limit = record.run, self._state.policy.limit
        sub_limits = run_sub_limits(self._state.policy, run, proposal)
        written_plan = ledger.plans().get(run, {})
        plan = written_plan
        if not ledger.spending_within(SubLimit(limit, run=run)):
            room = affordable_releases(ledger, run, proposal, limit, sub_limits)
            plan = {**proposal.spending(room), **written_plan}
        announced_count = proposal.spending(proposal.most).get(event, 0)
        planned_count = plan.get(event, 0)
        remaining = planned_count - self._state.log.count_releases(run, event, record.name)
        if record.count > remaining:
            raise ProtocolError(
                RefusalReason.OVER_BUDGET
                if planned_count < announced_count
                else RefusalReason.NOT_PLANNED
            )
        if not is_affordable(ledger, event, record.count, limit, sub_limits, remaining):
            raise ProtocolError(RefusalReason.OVER_BUDGET)
        for kind in plan.keys() - written_plan.keys():
            ledger.plan(run, kind, plan[kind])
        return remaining

    def _execute(self, work: _CheckedTask) -> bytes:
        """Accepts the task, debits and executes it, and stores the reply before it leaves."""
        state, record = self._state, work.record
        state.log.begin(record)
        start = time.monotonic()
        reply = self._train(work)
        if reply.refusal:
            state.log.take_back(record)
            raise ProtocolError(RefusalReason.OVER_BUDGET)
        head = state.history.sign(work.runner.ledger(work.task.client), state.key)
        answer, outcome = self._reply_message(work, reply, head)
        state.history.witness(head)
        state.log.keep(record, answer)
        if record.event is not None:
            state.log.see(head.head.tail)
        self._report(outcome, record, len(answer), time.monotonic() - start, head)
        return answer

    def _train(self, work: _CheckedTask) -> ClientReply:
        """Debits and trains. A failure is a reply without an update, since it may depend on the
        data; an error of the ledger is not, since nothing was released.
        """
        try:
            return work.runner.work(work.task, work.vector, work.correction)
        except DpflError:
            raise
        except Exception as error:
            record = work.record
            self._state.journal.failure(error, run=record.run, order=record.name)
            self._failures[record.run] += 1
            return ClientReply(work.task.client, failure="failed")

    def _reply_message(
        self, work: _CheckedTask, reply: ClientReply, head: SignedHead
    ) -> tuple[bytes, str]:
        """Writes the release, or a fixed reason in its place. Either carries the head of the ledger
        in which the release is paid for.

        Returns:
            The message, and its outcome for the log.
        """
        requests, own_fields = self._state.requests, {"ledger_head": head.to_words()}
        try:
            fields, arrays = self._reply_content(work, reply)
            return requests.answer(work.request, {**fields, **own_fields}, arrays), "released"
        except ProtocolError as error:
            reason = error.reason
            if reason == RefusalReason.NOT_FINITE:
                reason = RefusalReason.DIVERGED
            return requests.refusal(work.request, reason, own_fields), str(reason)

    def _reply_content(
        self, work: _CheckedTask, reply: ClientReply
    ) -> tuple[dict[str, Any], Mapping[str, np.ndarray]]:
        """Collects the fields and arrays of a release. Numbers of a secure sum never leave
        unmasked.
        """
        sum_id, record = work.sum_id, work.record
        if reply.failure or (sum_id is None) != (reply.numbers is None):
            raise ProtocolError(RefusalReason.DIVERGED if reply.diverged else RefusalReason.FAILED)
        if sum_id is not None and reply.numbers is not None:
            sum_arrays = self._state.sums.mask(record.run, record.name, sum_id, reply.numbers)
            return {"kind": "masked"}, sum_arrays
        fields, arrays = task_messages.reply_to_words(reply)
        return {"kind": "reply", "reply": fields}, arrays

    def _report(
        self, outcome: str, record: TaskRecord, size: int, seconds: float, head: SignedHead
    ) -> None:
        """Counts the outcome, and writes it into the node's log."""
        amounts = {outcome: 1, "releases": record.count, "seconds": seconds, "bytes": size}
        self._state.counts.update(amounts)  # type: ignore[arg-type]
        release = {}
        if record.event is not None:
            position = [head.head.rows, head.head.seal, head.head.start]
            release = {
                "release": encode(record.event),
                "count": record.count,
                "ledger": position,
            }
        self._state.journal.write(
            outcome,
            run=record.run,
            order=record.name,
            **release,
            bytes=size,
            seconds=round(seconds, 3),
        )

    def _runner_of(self, run: str, proposal: Proposal, size: int) -> ClientRunner:
        """Returns the runner of a run. It is built anew where the ledger's file is not the one that
        it opened.
        """
        if self._runner is not None:
            current, runner = self._runner
            if current == run and runner.ledger(proposal.client).is_in_place:
                return runner
            runner.close()
            self._runner = None
        state = self._state
        model = state.checker.check_model(proposal, size)
        runner = build_runner(state.policy, state.data, run, proposal, size, model)
        self._runner = run, runner
        return runner

    def _check_disk(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Refuses a task whose reply might not fit on the disk."""
        bytes_needed = 2 * sum(array.nbytes for array in arrays.values()) + FREE_BYTES
        if shutil.disk_usage(self._state.policy.folder).free < bytes_needed:
            raise ProtocolError(RefusalReason.NO_ROOM)

    def close(self) -> None:
        """Closes the ledger of the current run."""
        if self._runner is not None:
            self._runner[1].close()


def _vectors(
    arrays: Mapping[str, np.ndarray], task: ClientTask, runner: ClientRunner
) -> tuple[Tensor, Tensor | None]:
    """Reads the model, and what is added to its gradients (or this node's own last model). Each
    must have as many numbers as the layout says.
    """
    layout = runner.model.layout
    needs_last = task.local.objective.needs_last
    sizes = {"model": layout.size, "correction": layout.size if needs_last else layout.trainable}
    for name, array in arrays.items():
        if array.dtype != np.float32 or array.shape != (sizes.get(name),):
            raise ProtocolError(RefusalReason.BAD_ARRAYS)
    if "model" not in arrays or (task.noise_shares and len(arrays) > 1):
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    correction = arrays.get("correction")
    vector = torch.from_numpy(arrays["model"])
    return vector, None if correction is None else torch.from_numpy(correction)
