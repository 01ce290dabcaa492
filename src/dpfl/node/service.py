"""A node at work: a letter in, a letter out, always. What is asked is checked against the owner's
policy, written down, paid for, done, kept, and only then answered."""

from __future__ import annotations

import importlib.metadata
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import Tensor

from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.node import policy as charters
from dpfl.node.build_runner import build_runner, model_of, shares_of
from dpfl.node.folder import lock_folder, open_ledger
from dpfl.node.journal import Journal
from dpfl.node.ledger_history import LedgerHistory, begin_start
from dpfl.node.load_data import load_node_data, schema_digest
from dpfl.node.policy import NodePolicy
from dpfl.node.policy_checker import PolicyChecker, allowed, room
from dpfl.node.readiness import refuse_other_key
from dpfl.node.rollback import refuse_traces
from dpfl.node.secure_sum import SecureSumClient
from dpfl.node.statement import statement
from dpfl.node.task_log import RunRecord, TaskLog, TaskRecord
from dpfl.node.witness import Witness
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.accounting.events import encode
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.privacy.ledger.limit import SubLimit
from dpfl.protocol import messages, task_messages
from dpfl.protocol.keys import load_private, raw
from dpfl.protocol.ledger_head import SignedHead, fitting
from dpfl.protocol.messages import SignedMessage
from dpfl.protocol.proposal import Proposal, proposal_from_words
from dpfl.refusals import SENTENCES, ProtocolError, RefusalReason
from dpfl.secagg import SumId

COMMON = ("kind", "run", "to", "order")
SHOWN = {"join": {"heads"}, "ask-statement": {"heads"}}
"""What a letter of a kind may have: heads of ledgers, which whoever asks remembers."""
EVERYONE = "*"
ROOM = 64 << 20
"""Bytes that stay free on the disk."""
MOST_FAILURES = 3
"""Of a run: that training failed may say something of the data, so that no more of them are
told.
"""
VERSION = importlib.metadata.version("dpfl")


class Service:
    """Single-threaded. `open` refuses to start where anything of the node's own is not as it should
    be.
    """

    def __init__(
        self,
        charter: NodePolicy,
        key: Ed25519PrivateKey,
        data: Federation,
        journal: Journal,
        orders: TaskLog,
        lock: Any,
        witness: Witness | None = None,
    ) -> None:
        self.charter, self.held = charter, data
        self._key, self._journal, self._orders, self._lock = key, journal, orders, lock
        self._history = LedgerHistory(charter, raw(key.public_key()), witness)
        self._guard, self._sums = (
            PolicyChecker(charter, data, raw(key.public_key())),
            SecureSumClient(charter.name, key),
        )
        self._at: tuple[str, ClientRunner] | None = None
        self.counts: Counter[str] = Counter()
        """Of what happened since the start, for whoever watches."""
        self._failed: Counter[str] = Counter()
        self._handlers: dict[
            str, tuple[tuple[str, ...], Callable[[SignedMessage, str, str], dict[str, Any] | bytes]]
        ] = {
            "ping": ((), self._pong),
            "join": (("proposal",), self._join),
            "work": (("task",), self._work),
            "ask-statement": ((), self._statement),
            "card": (("number",), self._sum),
            "meet": (("cards",), self._sum),
            "survivors": (("survivors",), self._sum),
            "votes": (("votes",), self._sum),
        }

    @classmethod
    def open(cls, policy: Path) -> Service:
        charter = charters.read(policy)
        key, lock = load_private(charter.key), lock_folder(charter.folder)
        try:
            refuse_other_key(charter, raw(key.public_key()))
            charter.randomness  # noqa: B018  refused here, where it cannot be had
            data = load_node_data(charter)
            refuse_traces(charter)
            orders = TaskLog(charter.folder)
            with closing(open_ledger(charter, data, orders.seen)) as ledger:
                witness = begin_start(charter, ledger, key)
                orders.see(ledger.tail)
            journal = Journal(charter.folder / "node.log")
        except BaseException:
            lock.close()
            raise
        torch.set_num_threads(1)  # the sums of a client depend on how many there are
        journal.write("started", node=charter.name, version=VERSION)
        return cls(charter, key, data, journal, orders, lock, witness)

    def answer(self, letter: bytes) -> bytes:
        asked, head = messages.digest(letter), dict.fromkeys(COMMON, "")
        self.counts["letters"] += 1
        try:
            owner, found = self._read(letter)
            head = _addressed(found.head, self.charter.name)
            fields, handler = self._handlers.get(head["kind"], ((), None))
            if handler is None:
                raise ProtocolError(RefusalReason.UNKNOWN_MESSAGE)
            if found.head.keys() - SHOWN.get(head["kind"], set()) != {*COMMON, *fields}:
                raise ProtocolError(RefusalReason.BAD_WORDS)
            if head["kind"] != "ping":
                self._history.refuse_rolled_back()
            answer = handler(found, owner, asked)
            return answer if isinstance(answer, bytes) else self._letter(head, asked, answer)
        except ProtocolError as bad:
            return self._refused(head, asked, bad.reason)
        except Exception as error:
            self._journal.failure(error, run=head["run"], order=head["order"])
            return self._refused(
                head,
                asked,
                RefusalReason.LEDGER if isinstance(error, DpflError) else RefusalReason.FAILED,
            )

    def _read(self, data: bytes) -> tuple[str, SignedMessage]:
        """Whose it is of those who may ask, and what it says."""
        for owner, key in self.charter.owners.items():
            try:
                return owner, messages.read(data, key, self.charter.allow.most_bytes)
            except ProtocolError as bad:
                if bad.reason != RefusalReason.BAD_SIGNATURE:
                    raise
        raise ProtocolError(RefusalReason.BAD_SIGNATURE)

    def _letter(
        self,
        head: Mapping[str, str],
        asked: str,
        words: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] = {},
    ) -> bytes:
        own = {
            "run": head["run"],
            "order": head["order"],
            "from": self.charter.name,
            "answers": asked,
        }
        return messages.write({**own, **words}, arrays, self._key)

    def _refused(self, head: Mapping[str, str], asked: str, reason: RefusalReason) -> bytes:
        self.counts[f"refused {reason}"] += 1
        self._journal.write(
            "refused", kind=head["kind"], run=head["run"], order=head["order"], reason=str(reason)
        )
        return self._letter(
            head, asked, {"kind": "refused", "reason": str(reason), "sentence": SENTENCES[reason]}
        )

    def _pong(self, letter: SignedMessage, owner: str, asked: str) -> dict[str, Any]:
        return {"kind": "pong", "version": VERSION}

    def _statement(self, letter: SignedMessage, owner: str, asked: str) -> dict[str, Any]:
        run = letter.head["run"]
        proposal, _ = self._joined(run, owner)
        with closing(self._ledger()) as ledger:
            self._history.take(letter.head.get("heads", []), ledger, owner, proposal.federation)
            return {
                "kind": "statement",
                "statement": statement(ledger, self.charter.limit, run, self._key),
            }

    def _join(self, letter: SignedMessage, owner: str, asked: str) -> dict[str, Any]:
        run, proposal = letter.head["run"], proposal_from_words(letter.head["proposal"])
        with closing(self._ledger()) as ledger:
            self._history.take(letter.head.get("heads", []), ledger, owner, proposal.federation)
        known = self._orders.run(run)
        if known and (known.owner != owner or known.proposal != proposal.to_words()):
            raise ProtocolError(RefusalReason.WRONG_RUN)
        self._guard.check_run(proposal)
        size = (
            known.size
            if known
            else self.charter.declared(self.held.counted(self.charter.limits.unit)[0])
        )
        model_of(proposal, self.held, self.charter, size)
        with closing(self._ledger()) as ledger:
            if known is None and ledger.spending_within(SubLimit(self.charter.limit, run=run)):
                raise ProtocolError(
                    RefusalReason.WRONG_RUN
                )  # the orders of that run are lost, so it is over
            left = room(
                ledger, run, proposal, self.charter.limit, shares_of(self.charter, run, proposal)
            )
            signed = self._history.sign(ledger, self._key)
        if proposal.events and not left:
            raise ProtocolError(RefusalReason.OVER_BUDGET)
        if known is None:
            self._orders.join(run, RunRecord(owner, proposal.to_words(), size))
        self._history.joined.add(run)
        self._journal.write(
            "joined", run=run, system=proposal.system, model=proposal.model, size=size, left=left
        )
        others = self._history.others(proposal.federation, letter.head.get("heads", []))
        heads = {"ledger_head": signed.to_words(), "heads": fitting(others)}
        return {
            "kind": "joined",
            "size": size,
            "left": left,
            "schema": schema_digest(self.held),
            "version": VERSION,
        } | heads

    def _joined(self, run: str, owner: str) -> tuple[Proposal, int]:
        known = self._orders.run(run)
        if known is None:
            raise ProtocolError(RefusalReason.NOT_JOINED)
        if known.owner != owner:
            raise ProtocolError(RefusalReason.WRONG_RUN)
        return proposal_from_words(known.proposal), known.size

    def _work(self, letter: SignedMessage, owner: str, asked: str) -> bytes:
        head, began = letter.head, time.monotonic()
        proposal, size = self._joined(head["run"], owner)
        task = task_messages.task_from_words(head["task"])
        order = TaskRecord(head["run"], head["order"], asked, task.round)
        if kept := self._orders.reply(order):
            self._journal.write("sent again", run=order.run, order=order.name)
            return kept
        if order.name != task_messages.order_of(task, self._sums.session(order.run)):
            raise ProtocolError(
                RefusalReason.NO_KEYS if task.noise_shares else RefusalReason.BAD_WORDS
            )
        if self._failed[order.run] >= MOST_FAILURES:
            raise ProtocolError(RefusalReason.FAILED)
        self._guard.check_run(proposal)  # the policy may have changed since
        node = self._node(order.run, proposal, size)
        self._guard.check_task(task, proposal, node.model.layout, size)
        vector, correction = _vectors(letter.arrays, task, node)
        self._guard.check_vectors(task, letter.arrays, node.model.layout)
        at = (
            self._sums.expect(order.run, task, letter.arrays["model"])
            if task.noise_shares
            else None
        )
        self._check_disk(letter.arrays)
        self._history.refuse_unjoined(order.run, node.ledger(proposal.client))
        if paid := task.cost(size):
            order = replace(order, event=paid[0], count=paid[1])
            task = replace(task, horizon=self._planned(node, order, proposal))
        answer = self._done(node, order, task, vector, correction, head, at)
        if every := self.charter.tell.every:
            time.sleep(every - (time.monotonic() - began) % every)
        return answer

    def _sum(self, letter: SignedMessage, owner: str, asked: str) -> bytes:
        """A step of a secure sum beside the numbers themselves; one that comes again is answered as
        it was.
        """
        run, head = letter.head["run"], letter.head
        proposal, _ = self._joined(run, owner)
        if kept := self._sums.said(run, asked):
            self._journal.write("sent again", run=run, order=head["order"])
            return kept
        self._guard.check_run(proposal)
        words, arrays = self._sums.step(letter, self._guard.group(run, owner, proposal))
        answer = self._letter(head, asked, words, arrays)
        self._sums.keep(run, asked, answer)
        self._journal.write(words["kind"], run=run, order=head["order"])
        return answer

    def _planned(self, node: ClientRunner, order: TaskRecord, proposal: Proposal) -> int:
        """Releases of this kind that the run has left, by what it said beforehand and what that
        left room for; refused where that is not enough. It is written down before the first of
        them."""
        ledger, event = node.ledger(proposal.client), order.event
        known, shares = (
            ledger.plans().get(order.run, {}),
            shares_of(self.charter, order.run, proposal),
        )
        plan = known
        if not ledger.spending_within(SubLimit(self.charter.limit, run=order.run)):
            plan = {
                **proposal.spending(room(ledger, order.run, proposal, self.charter.limit, shares)),
                **known,
            }
        asked, planned = proposal.spending(proposal.most).get(event, 0), plan.get(event, 0)
        left = planned - self._orders.made(order.run, event, order.name)
        if order.count > left:
            raise ProtocolError(
                RefusalReason.OVER_BUDGET if planned < asked else RefusalReason.NOT_PLANNED
            )
        if not allowed(ledger, event, order.count, self.charter.limit, shares, left):
            raise ProtocolError(RefusalReason.OVER_BUDGET)
        for kind in plan.keys() - known.keys():
            ledger.plan(order.run, kind, plan[kind])
        return left

    def _done(
        self,
        node: ClientRunner,
        order: TaskRecord,
        task: ClientTask,
        vector: Tensor,
        correction: Tensor | None,
        head: Mapping[str, str],
        at: SumId | None,
    ) -> bytes:
        """Written down, debited and done; the answer is on disk before it leaves."""
        self._orders.begin(order)
        start = time.monotonic()
        try:
            reply = node.work(task, vector, correction)
        except DpflError:
            raise  # of the ledger: nothing was released, and the same order may come again
        except Exception as error:
            self._journal.failure(error, run=order.run, order=order.name)
            self._failed[order.run] += 1
            reply = ClientReply(task.client, failed="failed")
        if reply.refused:
            self._orders.take_back(order)
            raise ProtocolError(RefusalReason.OVER_BUDGET)
        signed = self._history.sign(node.ledger(task.client), self._key)
        answer, outcome = self._answered(reply, order, head, at, signed)
        self._history.witness(signed)
        self._orders.keep(order, answer)
        if order.event is not None:
            self._orders.see(signed.head.tail)
        self._tell(outcome, order, answer, time.monotonic() - start, signed)
        return answer

    def _answered(
        self,
        reply: ClientReply,
        order: TaskRecord,
        head: Mapping[str, str],
        at: SumId | None,
        signed: SignedHead,
    ) -> tuple[bytes, str]:
        """A release, or a fixed word in its place; what is not finite is not sent, nor numbers of a
        sum without their masks. With it goes the head of the ledger, in which it is paid for."""
        own = {"ledger_head": signed.to_words()}
        try:
            if reply.failed or (at is None) != (reply.numbers is None):
                raise ProtocolError(
                    RefusalReason.DIVERGED if reply.diverged else RefusalReason.FAILED
                )
            if at is not None and reply.numbers is not None:
                masked = self._sums.mask(order.run, order.name, at, reply.numbers)
                return self._letter(
                    head, order.letter, {"kind": "masked", **own}, masked
                ), "released"
            words, arrays = task_messages.reply_to_words(reply)
            return self._letter(
                head, order.letter, {"kind": "reply", "reply": words, **own}, arrays
            ), "released"
        except ProtocolError as bad:
            reason = (
                RefusalReason.DIVERGED if bad.reason == RefusalReason.NOT_FINITE else bad.reason
            )
            words = {"kind": "refused", "reason": str(reason), "sentence": SENTENCES[reason], **own}
            return self._letter(head, order.letter, words), str(reason)

    def _tell(
        self, outcome: str, order: TaskRecord, answer: bytes, seconds: float, signed: SignedHead
    ) -> None:
        counted = {outcome: 1, "releases": order.count, "seconds": seconds, "bytes": len(answer)}
        self.counts.update(counted)  # type: ignore[arg-type]
        head, spent = signed.head, {}
        if order.event is not None:
            spent = {
                "release": encode(order.event),
                "count": order.count,
                "ledger": [head.rows, head.seal, head.start],
            }
        told = {
            "run": order.run,
            "order": order.name,
            **spent,
            "bytes": len(answer),
            "seconds": round(seconds, 3),
        }
        self._journal.write(outcome, **told)

    def _node(self, run: str, proposal: Proposal, size: int) -> ClientRunner:
        """One run's at a time is in memory."""
        if (
            self._at is None
            or self._at[0] != run
            or not self._at[1].ledger(proposal.client).is_in_place
        ):
            if self._at:
                self._at[1].close()
            self._at = None
            self._at = run, build_runner(self.charter, self.held, run, proposal, size)
        return self._at[1]

    def _check_disk(self, arrays: Mapping[str, np.ndarray]) -> None:
        needed = 2 * sum(array.nbytes for array in arrays.values()) + ROOM
        if shutil.disk_usage(self.charter.folder).free < needed:
            raise ProtocolError(RefusalReason.NO_ROOM)

    def figures(self) -> dict[str, float]:
        """For whoever watches, from any thread: epsilon spent and allowed, and what happened since
        the start.
        """
        limit, path = self.charter.limit, ledger_path(self.charter.ledgers, self.charter.name)
        with closing(Ledger.read(path)) as ledger:
            spent = accountant(limit.accountant).epsilon(ledger.spending(), limit.delta)
        return {
            "epsilon spent": spent,
            "epsilon allowed": limit.epsilon,
            "delta": limit.delta,
            **self.counts,
        }

    def _ledger(self) -> Ledger:
        return open_ledger(self.charter, self.held, self._orders.seen)

    def note(self, event: str, **words: Any) -> None:
        """In the node's log, of what carries its letters."""
        self._journal.write(event, **words)

    def close(self) -> None:
        """Once, however often it is asked."""
        if self._lock.closed:
            return
        if self._at:
            self._at[1].close()
        self._journal.write("stopped", node=self.charter.name)
        self._journal.close()
        self._orders.close()
        self._lock.close()


def _addressed(head: Mapping[str, Any], name: str) -> dict[str, str]:
    """The words that every letter to a node has; a greeting may be to everyone."""
    try:
        found = {word: task_messages.text(head.get(word)) for word in COMMON}
    except ProtocolError:
        raise ProtocolError(RefusalReason.BAD_WORDS) from None
    if found["to"] != name and not (found["kind"] == "ping" and found["to"] == EVERYONE):
        raise ProtocolError(RefusalReason.WRONG_NODE)
    if not (found["run"].isalnum() and found["run"].isascii()):
        raise ProtocolError(RefusalReason.BAD_WORDS)
    return found


def _vectors(
    arrays: Mapping[str, np.ndarray], task: ClientTask, node: ClientRunner
) -> tuple[Tensor, Tensor | None]:
    """The model, and what is added to its gradients, or its last one of this node: as many numbers
    as they must have.
    """
    layout = node.model.layout
    sizes = {
        "model": layout.size,
        "correction": layout.size if task.local.objective.needs_last else layout.trainable,
    }
    for name, array in arrays.items():
        if array.dtype != np.float32 or array.shape != (sizes.get(name),):
            raise ProtocolError(RefusalReason.BAD_ARRAYS)
    if "model" not in arrays or (task.noise_shares and len(arrays) > 1):
        raise ProtocolError(RefusalReason.BAD_ARRAYS)
    correction = arrays.get("correction")
    return torch.from_numpy(arrays["model"]), None if correction is None else torch.from_numpy(
        correction
    )
