"""Clients at nodes elsewhere, behind the interface of those on this machine: the same order in, the
same replies out.
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
ANOTHER = "its reply is not one to this order"
BEYOND = (
    "its reply is larger than clip, noise and steps make any, or no answer to what was "
    "asked, "
    "and was dropped"
)
AWAY = "it was away when keys were agreed, and is asked again in a later round"


Join = Callable[[Collection[str]], Mapping[str, SignedMessage | InvalidReply]]
"""Asks these nodes to join, and returns the answers of those that answered."""


@dataclass(frozen=True)
class RemoteNode:
    """A node that takes part: its place in the list that it was shown when it joined, and the size
    that it declared.
    """

    name: str
    place: int
    size: int


@dataclass
class RemoteEngine:
    """`ledgers` are the server's own count: what was ordered, written before the order goes out.
    The node's own is its own.
    """

    correspondence: NodeChannel
    members: Sequence[RemoteNode]
    run_id: str
    ledgers: ClientLedgers | None
    seconds: float
    least: int
    size: int
    """Of the model, in numbers."""
    sums: SecureSumServer | None = None
    """Where numbers are masked, and only their sum is opened."""
    join: Join | None = None
    """Asks nodes that were started again to join the run again."""

    def run(self, order: RoundRequest) -> list[ClientReply]:
        """Closed by the last answer, or at the deadline by as many as are needed; of a secure sum
        it is the first exchange.
        """
        refused = self._begun(order)
        refused |= {
            task.client: reply
            for task in order.tasks
            if task.client not in refused and (reply := self._counted(task))
        }
        asked = {
            task: self._letter(order, task) for task in order.tasks if task.client not in refused
        }
        answers = self._answers({self._name(task): letter for task, letter in asked.items()})
        replies = (
            _alike(
                {
                    task.client: self._believed(order, task, answers.get(self._name(task)))
                    for task in asked
                }
            )
            | refused
        )
        if sums := self._summed(order):
            sums.close(order.round, answers, [self._name(task) for task in asked])
        answered = sum(
            not isinstance(answers.get(self._name(task)), InvalidReply | None) for task in asked
        )
        if answered < min(self.least, len(asked)):
            raise DpflError(
                f"{answered} of {len(asked)} nodes answered round {order.round + 1} within "
                f"{self.seconds:g} seconds, where "
                f"{self.least} are needed: go on when they are back, with --resume."
            )
        return [replies[task.client] for task in order.tasks]

    def _answers(self, asked: Mapping[str, bytes]) -> dict[str, SignedMessage | InvalidReply]:
        """A node that was started again joins again, where it is shown what it signed, and is then
        asked once more. One whose last heads do not follow one another is shown them first: its
        machine may have been set back while it ran."""
        memory = self.correspondence.memory
        doubtful = [name for name in asked if memory and memory.is_doubtful(name)]
        compared = self.join(doubtful) if self.join and doubtful else {}
        fine = {name for name, one in compared.items() if is_kind(one, "joined")}
        answers = {name: one for name, one in compared.items() if name not in fine}
        asked = {
            name: letter for name, letter in asked.items() if name in fine or name not in doubtful
        }
        answers |= self.correspondence.ask(asked, self.seconds)
        started = [
            name
            for name, one in answers.items()
            if isinstance(one, SignedMessage) and one.head.get("reason") == JOIN_AGAIN
        ]
        if not started or self.join is None:
            return answers
        refused = {
            name: one for name, one in self.join(started).items() if not is_kind(one, "joined")
        }
        again = self.correspondence.ask(
            {name: asked[name] for name in started if name not in refused}, self.seconds
        )
        return {name: one for name, one in answers.items() if name not in started} | refused | again

    def _begun(self, order: RoundRequest) -> dict[int, ClientReply]:
        """Whoever has no keys for a secure sum is not asked for its part of it."""
        if (sums := self._summed(order)) is None:
            return {}
        first = order.tasks[0]
        sums.ready(order.round, [self._name(task) for task in order.tasks])
        sums.begin(
            secure_sum_messages.at_of(first, sums.session, order.vector.numpy()), self._order(first)
        )
        return {
            task.client: ClientReply(task.client, failed=AWAY)
            for task in order.tasks
            if self._name(task) not in sums.here
        }

    def _summed(self, order: RoundRequest) -> SecureSumServer | None:
        return self.sums if order.tasks and order.tasks[0].noise_shares else None

    def add(self, round: int, numbers: Mapping[int, np.ndarray]) -> np.ndarray:
        """The sum of what clients sent in the last round, which nobody sees but as a sum."""
        assert self.sums is not None
        return self.sums.add({self.members[client].name: own for client, own in numbers.items()})

    def _order(self, task: ClientTask) -> str:
        return task_messages.order_of(task, self.sums.session if self.sums else "")

    def _name(self, task: ClientTask) -> str:
        return self.members[task.client].name

    def _letter(self, order: RoundRequest, task: ClientTask) -> bytes:
        member = self.members[task.client]
        words = {"task": task_messages.task_to_words(replace(task, client=member.place))}
        arrays: dict[str, np.ndarray] = {"model": order.vector.numpy()}
        if (correction := order.corrections.get(task.client)) is not None:
            arrays["correction"] = correction.numpy()
        return self.correspondence.letter(member.name, "work", self._order(task), words, arrays)

    def _counted(self, task: ClientTask) -> ClientReply | None:
        """Law 1, for the server's own account: under one name an order, so that one that is sent
        again counts once.
        """
        paid = task.cost(self.members[task.client].size)
        if self.ledgers is None or paid is None:
            return None
        event, count = paid
        with closing(self.ledgers.open(task.client)) as ledger:
            try:
                ledger.debit(
                    self.run_id,
                    f"{self.run_id}/{self._order(task)}",
                    event,
                    count,
                    self.ledgers.limit,
                    task.horizon,
                )
            except BudgetRefusal as refusal:
                return ClientReply(task.client, refused=str(refusal))
        return None

    def _believed(
        self, order: RoundRequest, task: ClientTask, answer: SignedMessage | InvalidReply | None
    ) -> ClientReply:
        reply, declared = self._reply(task, answer), self.members[task.client].size
        beyond = bound_violation(
            task, reply, order.vector, declared, order.corrections.get(task.client)
        )
        return ClientReply(task.client, failed=BEYOND) if beyond else reply

    def _reply(self, task: ClientTask, answer: SignedMessage | InvalidReply | None) -> ClientReply:
        if answer is None:
            return ClientReply(task.client, failed=SILENT)
        if isinstance(answer, InvalidReply):
            return ClientReply(task.client, failed=answer.reason)
        if answer.head.get("kind") == "refused":
            words = refusal_of(answer.head)
            passing = str(answer.head.get("reason")) in PASSING
            return (
                ClientReply(task.client, failed=words)
                if passing
                else ClientReply(task.client, refused=words)
            )
        try:
            if task.noise_shares and self.sums:
                return ClientReply(task.client, numbers=self.sums.take(self._name(task), answer))
            reply = task_messages.reply_from_words(answer.head["reply"], answer.arrays, self.size)
        except (ProtocolError, KeyError):
            return ClientReply(task.client, failed=ANOTHER)
        return (
            replace(reply, client=task.client)
            if _asked_for(task, reply)
            else ClientReply(task.client, failed=ANOTHER)
        )

    def close(self) -> None:
        self.correspondence.post.close()


def is_kind(answer: SignedMessage | InvalidReply, kind: str) -> bool:
    """Whether an answer came, and is of this kind."""
    return isinstance(answer, SignedMessage) and answer.head.get("kind") == kind


def _asked_for(task: ClientTask, reply: ClientReply) -> bool:
    """An answer to a survey and nothing else; or an update, with one number for a slope where one
    was asked for.
    """
    raw = reply.raw or {}
    if task.query:
        return reply.update is None and raw.keys() == {"answer"} and raw["answer"].ndim == 1
    beside = {name: one.shape for name, one in raw.items()}
    return reply.update is not None and (
        task.raw or beside == ({"slope": ()} if task.slope else {})
    )


def _alike(replies: dict[int, ClientReply]) -> dict[int, ClientReply]:
    """Answers to one survey are as long as most of them."""
    lengths = {
        client: reply.raw["answer"].size
        for client, reply in replies.items()
        if reply.raw and "answer" in reply.raw
    }
    usual = max(lengths.values(), key=list(lengths.values()).count, default=0)
    odd = [client for client, length in lengths.items() if length != usual]
    return replies | {client: ClientReply(client, failed=ANOTHER) for client in odd}
