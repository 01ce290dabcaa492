"""Works on the tasks of a client where its data is.

A task is worked on in this order, and no step may be left out or moved:

1. The owner's rules refuse what it does not disclose (`DisclosureRules`).
2. The released value gets its name, from the model, the data and the task (`ReleaseNames`).
3. The client's own ledger is debited (`ClientDebits`). The event is on the disk before anything
   derived from the data leaves. The disk writes while the client trains.
4. The client trains (`ClientTraining`), answers a query (`answer_query`), or looks at raw values
   (`extra_values`). The name keys the noise, so no two values ever share it.
5. The reply leaves only once the debit is written. A debit that fails takes the reply with it.

With keyed noise, a task that is repeated after a crash has the same name, the same noise and one
debit. With the system's entropy, or in a secure sum, the repeated task is a new release and is
debited again. The same runner works in a simulation, in a worker process, and at a node
(`node/service.py`):

    runner = ClientRunner(context)
    reply = runner.work(task, vector)  # an update, an answer, or why there is neither
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from torch import Tensor

from dpfl.client.context import ClientContext
from dpfl.client.debits import ClientDebits
from dpfl.client.extra_values import extra_values, model_differences, public_gradient_norms
from dpfl.client.query_answers import answer_query
from dpfl.client.release_names import ReleaseNames
from dpfl.client.task import ClientReply, ClientTask
from dpfl.client.training import ClientTraining
from dpfl.client.workspace import Workspace
from dpfl.errors import DpflError
from dpfl.gradients.clip_factors import NonFinite
from dpfl.gradients.sum_rounding import most_units
from dpfl.models import FlatModel
from dpfl.privacy import BudgetRefusal, Ledger, Randomness
from dpfl.privacy.mechanisms.clips.rounding import COVER
from dpfl.privacy.mechanisms.draw_bounds import largest_draw
from dpfl.privacy.mechanisms.randomness import with_scope

_log = logging.getLogger("dpfl")

MANY_ADDITIONS = 4096
"""More additions than a chunk has in usual models. No model is examined where the batch is below
the limit for so many additions.
"""


class ClientRunner:
    """Works on tasks of any client of its machine, one at a time.

    Args:
        context: What the clients of the machine share.

    Raises:
        DpflError: The ledgers are for persons and the data does not say whose each row is, or the
            other way round.
    """

    def __init__(self, context: ClientContext) -> None:
        self._debits = ClientDebits(context)
        self._workspace = Workspace(context)
        if context.fingerprint is None:
            context = replace(context, fingerprint=self._workspace.model.fingerprint)
        self.context = context
        self._names = ReleaseNames(context)
        self._reported_causes: set[str] = set()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")

    @property
    def model(self) -> FlatModel:
        """The model that tasks train, one after another."""
        return self._workspace.model

    @property
    def arithmetic(self) -> str:
        """How the units of private steps were computed so far, in words for the statement."""
        return self._workspace.arithmetic

    def ledger(self, client: int) -> Ledger:
        """Opens a client's ledger, unless it is open.

        Args:
            client: The client's number.

        Returns:
            The ledger.
        """
        return self._debits.ledger(client)

    def reply(
        self, task: ClientTask, vector: Tensor, correction: Tensor | None = None
    ) -> ClientReply:
        """Works on a task; a failure costs this client's reply and not the round.

        The text of a failure may contain data of the client. They go to the log of its own machine
        and nowhere else.

        Args:
            task: What is asked.
            vector: The model that the task starts from.
            correction: What is added to the client's gradients, or its last model.

        Returns:
            The reply; its update is valid until the next task.

        Raises:
            DpflError: Something that the user must correct, which ends the run.
        """
        try:
            return self.work(task, vector, correction)
        except DpflError:
            raise
        except Exception as error:
            self._log_failure(task, error)
            return ClientReply(
                task.client, failure=f"it failed ({type(error).__name__}), its own log says why"
            )

    def work(
        self, task: ClientTask, vector: Tensor, correction: Tensor | None = None
    ) -> ClientReply:
        """Works on a task: refuses, or debits, trains and releases.

        Args:
            task: What is asked.
            vector: The model that the task starts from.
            correction: What is added to the client's gradients, or its last model.

        Returns:
            The reply; its update is valid until the next task.

        Raises:
            DpflError: Something that the user must correct.
        """
        if refusal := self._refusal(task):
            return ClientReply(task.client, refusal=refusal)
        self._check_batches(task)
        declared_size = self.context.data.declared_sizes[task.client]
        cost = task.cost(declared_size) if self.context.ledgers else None
        randomness = self.context.randomness
        if cost is None:
            if task.update_release.shared_by:
                name = self._names.name(task, vector, correction)
                randomness = with_scope(randomness, name)
            return self._release(task, vector, randomness, correction)
        name = self._names.name(task, vector, correction)
        if task.noise_shares:
            name = self._debits.unused_name(task, name)
        if randomness.repeatable:
            randomness = randomness.in_epoch(self._debits.epoch(task.client))
        try:
            write = self._debits.begin(task, name, *cost)
        except BudgetRefusal as budget_refusal:
            return ClientReply(task.client, refusal=str(budget_refusal))
        return self._while_writing(
            write, lambda: self._release(task, vector, with_scope(randomness, name), correction)
        )

    def _while_writing(
        self, write: Callable[[], None], release: Callable[[], ClientReply]
    ) -> ClientReply:
        """Returns the reply once the debit is on the disk."""
        writing = self._writer.submit(write)
        try:
            reply = release()
        finally:
            self._await(writing)
        writing.result()
        return reply

    def _await(self, writing: Future[None]) -> None:
        """Waits for the part of the write that training did not cover."""
        writing.exception()

    def _log_failure(self, task: ClientTask, error: Exception) -> None:
        """Logs each cause once, whichever client has it."""
        cause = f"{type(error).__name__}: {error}"
        if cause not in self._reported_causes:
            self._reported_causes.add(cause)
            _log.warning("Client %d failed in round %d: %s", task.client, task.round + 1, cause)
            _log.debug("Where it failed:", exc_info=error)

    def _refusal(self, task: ClientTask) -> str:
        """Says why the owner refuses, where it keeps a ledger and has something to hide."""
        context = self.context
        if context.ledgers is None or task.client in context.public:
            return ""
        return context.disclosure_rules.refusal(
            task, lambda: self._debits.has_unbounded_release(task.client)
        )

    def _check_batches(self, task: ClientTask) -> None:
        """Refuses batches that are too large to be summed within the clip's margin.

        The limit is the clip's and not the owner's. It is judged by the declared size, before
        anything is drawn: whether a batch was too large would tell how many units there are.
        """
        if task.samples is None:
            return
        data = self.context.data
        most = largest_draw(task.samples.sampling, data.declared_sizes[task.client])
        if most <= most_units(1 / COVER, MANY_ADDITIONS):
            return
        limit = self._workspace.gradients(task.samples).largest_batch(
            data.x[:0], data.y[:0], data.unit_ids is not None
        )
        if most > limit:
            raise DpflError(
                f"By the declared size, a batch may have {most:.0f} units, of which {limit:.0f} "
                "can be summed within the margin of the clip; lower the rate q."
            )

    def _release(
        self, task: ClientTask, vector: Tensor, randomness: Randomness, correction: Tensor | None
    ) -> ClientReply:
        """Computes what leaves, with noise for this value alone."""
        client, generator, workspace = task.client, task.generator(randomness), self._workspace
        if task.norms:
            return ClientReply(
                client, raw={"norms": public_gradient_norms(workspace, task, vector)}
            )
        if task.query:
            return answer_query(workspace, task, vector, generator)
        if task.only_raw_values and correction is not None:
            raw = model_differences(workspace, task, vector, correction, generator)
            return ClientReply(client, raw=raw)
        try:
            if task.summed_release:
                training = ClientTraining(workspace, task, vector, generator)
                return ClientReply(client, numbers=training.sum_numbers(task.summed_release))
            training = ClientTraining(workspace, task, vector, generator, correction)
            update, inside = training.update()
            return ClientReply(client, update, inside, raw=extra_values(training))
        except NonFinite as error:
            return ClientReply(client, failure=str(error), diverged=True)

    def close(self) -> None:
        """Closes the ledgers, and ends the thread that writes to the disk."""
        self._writer.shutdown()
        self._debits.close()
