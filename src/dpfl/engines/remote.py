"""The engine whose clients are nodes on other machines.

`RemoteEngine.run` executes a round in these steps:

1. *Agree on keys.* In a round with secure sums, nodes that have no keys are left out, and are asked
   again in a later round.
2. *Count.* The server debits each task in its own ledgers, under one name per task, before the task
   goes out (law 1). A task that is sent again counts once. These ledgers are the server's own
   account; what a node spent is in the node's ledger, and in the statement that it signs.
3. *Ask.* Each task goes out as one signed message, again and again until it is answered or the
   deadline passes. A node that was started again asks for the run to join it again first; it is
   then shown the heads that it signed before, so that it notices a disk that was set back.
4. *Check.* A reply is used if the node signed it, for this very message, if it is what was asked
   for, and if it is no larger than clip, noise and steps can make it (`reply_bounds.py`).
5. *Close.* If fewer nodes answered than the run needs, the round cannot go on.

Nothing that a node sends can end the round: a node that refuses, fails, lies or stays silent costs
its own reply.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from dpfl.client.task import ClientReply, ClientTask, RoundRequest
from dpfl.engines.node_channel import InvalidReply, NodeChannel, refusal_of
from dpfl.engines.reply_bounds import bound_violation
from dpfl.engines.secure_sum import SecureSumServer
from dpfl.errors import DpflError
from dpfl.privacy import BudgetRefusal
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.protocol import secure_sum_messages, task_messages
from dpfl.protocol.messages import SignedMessage
from dpfl.refusals import PASSING, ProtocolError, RefusalReason

JOIN_AGAIN = str(RefusalReason.JOIN_AGAIN)
SILENT = "there was no answer before the deadline"
ANOTHER = "its reply does not answer this task"
BEYOND = (
    "its reply is larger than clip norm, noise and steps allow, or does not answer the "
    "request; it was dropped"
)
AWAY = "it was away when keys were agreed, and is asked again in a later round"

Answer = SignedMessage | InvalidReply
Join = Callable[[Collection[str]], Mapping[str, Answer]]
"""Asks some nodes to join the run again, and returns the answers that came."""


@dataclass(frozen=True)
class RemoteNode:
    """A node that joined the run.

    Attributes:
        name: Its name.
        place: Its number in the list of nodes that was proposed to it.
        size: The number of units that it declared.
    """

    name: str
    place: int
    size: int


@dataclass
class RemoteEngine:
    """Sends tasks to nodes. Implements `dpfl.engines.Engine`.

    Attributes:
        channel: Messages to the nodes of this run.
        members: The nodes that joined, by client number.
        run_id: The run's name in the server's ledgers.
        ledgers: The server's own account of what it asked for; None where nothing is paid for.
        seconds: How long a round may take.
        least: How many nodes must answer in a round.
        size: How many numbers the model's vector has.
        sums: The server's part in secure sums; None where the server gets updates.
        join: Asks nodes that were started again to join the run again.
    """

    channel: NodeChannel
    members: Sequence[RemoteNode]
    run_id: str
    ledgers: ClientLedgers | None
    seconds: float
    least: int
    size: int
    sums: SecureSumServer | None = None
    join: Join | None = None

    def run(self, request: RoundRequest) -> list[ClientReply]:
        """Executes one round; see the module's documentation for its steps.

        Args:
            request: The tasks of the round and the model that they start from.

        Returns:
            One reply per task, in the order of the tasks.

        Raises:
            DpflError: Too few nodes answered, or have keys for a secure sum.
        """
        replies = self._agree_on_keys(request)
        for task in request.tasks:
            if task.client not in replies and (refusal := self._debit(task)):
                replies[task.client] = refusal
        tasks = [task for task in request.tasks if task.client not in replies]
        answers = self._ask({self._name(task): self._message(request, task) for task in tasks})
        replies |= _of_one_length(
            {
                task.client: self._check_reply(request, task, answers.get(self._name(task)))
                for task in tasks
            }
        )
        if sums := self._sums_of(request):
            sums.close(request.round, answers, [self._name(task) for task in tasks])
        self._refuse_too_few(request, tasks, answers)
        return [replies[task.client] for task in request.tasks]

    def add(self, round: int, numbers: Mapping[int, np.ndarray]) -> np.ndarray:
        """Adds up what clients sent in the last round of secure sums.

        Args:
            round: The round.
            numbers: The masked numbers of each client whose numbers are to be in the sum.

        Returns:
            The sum, which is all that the server learns.

        Raises:
            RepeatSum: The sum cannot be opened.
        """
        assert self.sums is not None
        return self.sums.add({self.members[client].name: own for client, own in numbers.items()})

    def close(self) -> None:
        """Closes the transport."""
        self.channel.transport.close()

    # Keys

    def _agree_on_keys(self, request: RoundRequest) -> dict[int, ClientReply]:
        """Begins a secure sum. Nodes without keys are not asked for their part of it."""
        if (sums := self._sums_of(request)) is None:
            return {}
        first = request.tasks[0]
        sums.ready(request.round, [self._name(task) for task in request.tasks])
        sum_id = secure_sum_messages.sum_id_of(first, sums.session, request.vector.numpy())
        sums.begin(sum_id, self._task_name(first))
        return {
            task.client: ClientReply(task.client, failure=AWAY)
            for task in request.tasks
            if self._name(task) not in sums.here
        }

    def _sums_of(self, request: RoundRequest) -> SecureSumServer | None:
        return self.sums if request.tasks and request.tasks[0].noise_shares else None

    # Counting and sending

    def _debit(self, task: ClientTask) -> ClientReply | None:
        """Debits a task in the server's account; a refusal is the task's reply."""
        cost = task.cost(self.members[task.client].size)
        if self.ledgers is None or cost is None:
            return None
        event, count = cost
        name = f"{self.run_id}/{self._task_name(task)}"
        with closing(self.ledgers.open(task.client)) as ledger:
            try:
                ledger.debit(self.run_id, name, event, count, self.ledgers.limit, task.horizon)
            except BudgetRefusal as refusal:
                return ClientReply(task.client, refusal=str(refusal))
        return None

    def _message(self, request: RoundRequest, task: ClientTask) -> bytes:
        member = self.members[task.client]
        words = {"task": task_messages.task_to_words(replace(task, client=member.place))}
        arrays: dict[str, np.ndarray] = {"model": request.vector.numpy()}
        if (correction := request.corrections.get(task.client)) is not None:
            arrays["correction"] = correction.numpy()
        return self.channel.message(member.name, "work", self._task_name(task), words, arrays)

    def _task_name(self, task: ClientTask) -> str:
        return task_messages.task_name(task, self.sums.session if self.sums else "")

    def _name(self, task: ClientTask) -> str:
        return self.members[task.client].name

    def _ask(self, requests: Mapping[str, bytes]) -> dict[str, Answer]:
        """Sends the tasks, and lets nodes join again first where that is needed."""
        history_answers = self._compare_histories(requests)
        requests = {
            name: message for name, message in requests.items() if name not in history_answers
        }
        answers = {name: answer for name, answer in history_answers.items() if answer is not None}
        answers |= self.channel.ask(requests, self.seconds)
        restarted_nodes = [
            name
            for name, answer in answers.items()
            if isinstance(answer, SignedMessage) and answer.header.get("reason") == JOIN_AGAIN
        ]
        if not restarted_nodes or self.join is None:
            return answers
        rejections = _not_joined(self.join(restarted_nodes))
        again = {name: requests[name] for name in restarted_nodes if name not in rejections}
        other_answers = {
            name: answer for name, answer in answers.items() if name not in restarted_nodes
        }
        return other_answers | rejections | self.channel.ask(again, self.seconds)

    def _compare_histories(self, names: Collection[str]) -> dict[str, Answer | None]:
        """Shows nodes whose last heads do not follow one another all of their heads: their machine
        may have been set back while it ran.

        Returns:
            By name, the answers of those that did not join again; None for those that did not
            answer. They are asked for nothing in this round.
        """
        memory = self.channel.memory
        doubtful = [name for name in names if memory and memory.is_doubtful(name)]
        answers = self.join(doubtful) if self.join and doubtful else {}
        return {
            name: answers.get(name)
            for name in doubtful
            if name not in answers or not is_kind(answers[name], "joined")
        }

    # Checking

    def _check_reply(
        self, request: RoundRequest, task: ClientTask, answer: Answer | None
    ) -> ClientReply:
        """Reads the reply in an answer, if it is no larger than it can be."""
        reply, declared_size = self._reply(task, answer), self.members[task.client].size
        correction = request.corrections.get(task.client)
        if bound_violation(task, reply, request.vector, declared_size, correction):
            return ClientReply(task.client, failure=BEYOND)
        return reply

    def _reply(self, task: ClientTask, answer: Answer | None) -> ClientReply:
        """Reads the reply in an answer, or says why there is none."""
        if answer is None:
            return ClientReply(task.client, failure=SILENT)
        if isinstance(answer, InvalidReply):
            return ClientReply(task.client, failure=answer.reason)
        if answer.header.get("kind") == "refused":
            return _refusal(task, answer)
        try:
            if task.noise_shares and self.sums:
                return ClientReply(task.client, numbers=self.sums.take(self._name(task), answer))
            reply = task_messages.reply_from_words(answer.header["reply"], answer.arrays, self.size)
        except (ProtocolError, KeyError):
            return ClientReply(task.client, failure=ANOTHER)
        if not _fits(task, reply):
            return ClientReply(task.client, failure=ANOTHER)
        return replace(reply, client=task.client)

    def _refuse_too_few(
        self, request: RoundRequest, tasks: Sequence[ClientTask], answers: Mapping[str, Answer]
    ) -> None:
        usable = sum(isinstance(answers.get(self._name(task)), SignedMessage) for task in tasks)
        if usable < min(self.least, len(tasks)):
            raise DpflError(
                f"{usable} of {len(tasks)} nodes answered round {request.round + 1} within "
                f"{self.seconds:g} seconds, where "
                f"{self.least} are needed: continue with --resume when they are back."
            )


def is_kind(answer: Answer, kind: str) -> bool:
    """Decides whether an answer came and is of a kind.

    Args:
        answer: The answer.
        kind: The kind, such as "joined".

    Returns:
        Whether it is.
    """
    return isinstance(answer, SignedMessage) and answer.header.get("kind") == kind


def _not_joined(answers: Mapping[str, Answer]) -> dict[str, Answer]:
    return {name: answer for name, answer in answers.items() if not is_kind(answer, "joined")}


def _refusal(task: ClientTask, answer: SignedMessage) -> ClientReply:
    """Writes a refusal as a reply. A refusal of this task alone counts as a failure; any other is a
    refusal of the whole run.
    """
    sentence = refusal_of(answer.header)
    if str(answer.header.get("reason")) in PASSING:
        return ClientReply(task.client, failure=sentence)
    return ClientReply(task.client, refusal=sentence)


def _fits(task: ClientTask, reply: ClientReply) -> bool:
    """Says whether a reply is what was asked for: an answer to a query and nothing else; or an
    update, with one number for a slope where one was asked for.
    """
    raw = reply.raw or {}
    if task.query:
        return reply.update is None and raw.keys() == {"answer"} and raw["answer"].ndim == 1
    if reply.update is None:
        return False
    shapes = {name: array.shape for name, array in raw.items()}
    return task.raw or shapes == ({"slope": ()} if task.slope else {})


def _of_one_length(replies: dict[int, ClientReply]) -> dict[int, ClientReply]:
    """Drops answers to a query that are not as long as most of them."""
    lengths = {
        client: reply.raw["answer"].size
        for client, reply in replies.items()
        if reply.raw and "answer" in reply.raw
    }
    usual = max(lengths.values(), key=list(lengths.values()).count, default=0)
    odd = [client for client, length in lengths.items() if length != usual]
    return replies | {client: ClientReply(client, failure=ANOTHER) for client in odd}
