"""A node's part in secure sums, between the messages of the protocol and `dpfl.secagg.SumMember`.

Keys, seeds and answers are in memory only. A node that was started again has none of them: it is
missing until the next set-up, and cannot use a mask twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.client.task import ClientTask
from dpfl.node.requests import Request
from dpfl.protocol import secure_sum_messages
from dpfl.protocol.secure_sum_messages import Arrays, Words
from dpfl.protocol.value_forms import whole
from dpfl.refusals import ProtocolError, RefusalReason
from dpfl.secagg import MemberRefusal, SumGroup, SumId, SumMember, UnmaskingShares

MOST_SESSIONS = 8
"""Runs whose keys are kept. The oldest go first, and are set up again if they go on."""
set_up_number = whole(0, 1 << 53)


@dataclass
class SumSession:
    """The keys of a run, the sum under way, and the answers that were given.

    Attributes:
        member: This node as a member of the sums.
        sum_id: The sum under way, or the last one.
        task_name: The name of the task that the sum is for.
        sum_answers: Answers about this sum, by the digest of the request.
        set_up_answers: Answers before the first sum, by the digest of the request.
    """

    member: SumMember
    sum_id: SumId | None = None
    task_name: str = ""
    sum_answers: dict[str, bytes] = field(default_factory=dict)
    set_up_answers: dict[str, bytes] = field(default_factory=dict)


class SecureSumClient:
    """A node's sessions, one per run.

    Messages can be late, and whoever carries them can keep them. So set-ups are numbered by the
    owner of the run, and a set-up never replaces a later one.
    """

    def __init__(self, name: str, key: Ed25519PrivateKey) -> None:
        self._name, self._key = name, key
        self._sessions: dict[str, SumSession] = {}
        self._latest: dict[str, int] = {}
        """The number of each run's last set-up here, even if its keys are gone."""

    def replay(self, run: str, digest: str) -> bytes | None:
        """Looks up the answer to a request that came before.

        Args:
            run: The run.
            digest: The digest of the request.

        Returns:
            The same answer again; None where there is none.
        """
        session = self._sessions.get(run)
        if session is None:
            return None
        return session.sum_answers.get(digest) or session.set_up_answers.get(digest)

    def keep(self, run: str, digest: str, answer: bytes) -> None:
        """Stores an answer, to give the same one to the same request.

        Args:
            run: The run.
            digest: The digest of the request.
            answer: The signed answer.
        """
        session = self._session(run)
        answers = session.sum_answers if session.sum_id else session.set_up_answers
        answers[digest] = answer

    def step(self, request: Request, group: SumGroup) -> tuple[Words, Arrays]:
        """Takes a step of the protocol other than masking: a set-up, or an exchange after it.

        Args:
            request: The request.
            group: The members of the run's sums.

        Returns:
            The fields and arrays of the answer.

        Raises:
            ProtocolError: The step is refused.
        """
        with refusing():
            if request.kind == "card":
                number = set_up_number(request.fields["number"])
                return self._advertise(request.run, group, number), {}
            if request.kind == "meet":
                return self._receive_keys(request), {}
            return self._exchange(request, self._session(request.run))

    def _advertise(self, run: str, group: SumGroup, number: int) -> Words:
        """Signs new keys for this run. A sum that was under way is over for this node."""
        if number <= self._latest.get(run, -1):
            raise ProtocolError(RefusalReason.SET_UP_PAST)
        member = SumMember(group, self._name, self._key)
        self._latest[run] = number
        self._sessions.pop(run, None)
        self._sessions[run] = SumSession(member)
        for oldest in list(self._sessions)[:-MOST_SESSIONS]:
            del self._sessions[oldest]
        return {
            "kind": "card",
            "card": secure_sum_messages.advertisement_to_words(member.advertisement),
        }

    def _receive_keys(self, request: Request) -> Words:
        member = self._session(request.run).member
        member.receive_keys(secure_sum_messages.advertisements(request.fields["cards"]))
        return {"kind": "met", "session": member.session}

    def _exchange(self, request: Request, session: SumSession) -> tuple[Words, Arrays]:
        sum_id, member = session.sum_id, session.member
        if sum_id is None or request.task_name != session.task_name:
            raise ProtocolError(RefusalReason.SUM_OVER)
        if request.kind == "votes":
            votes = secure_sum_messages.votes_from_words(request.fields["votes"], sum_id)
            return secure_sum_messages.shares_to_fields(member.open(votes))
        survivors = secure_sum_messages.survivors_from_fields(
            request.fields["survivors"], request.arrays, sum_id, self._name, member.size
        )
        answer = member.agree(survivors)
        if isinstance(answer, UnmaskingShares):
            return secure_sum_messages.shares_to_fields(answer)
        return {"kind": "vote", "signature": answer.signature.hex()}, {}

    def session(self, run: str) -> str:
        """Looks up the digest that names a run's session.

        Args:
            run: The run.

        Returns:
            The digest; empty before the members' keys were shown.
        """
        session = self._sessions.get(run)
        return session.member.session if session else ""

    def expect(self, run: str, task: ClientTask, model: np.ndarray) -> SumId:
        """Names the sum that a task is for, before anything is debited.

        Args:
            run: The run.
            task: The task.
            model: The model that came with it.

        Returns:
            The sum.

        Raises:
            ProtocolError: Nothing would be masked for it: there are no keys, or it is past.
        """
        member = self._session(run).member
        sum_id = secure_sum_messages.sum_id_of(task, member.session, model)
        with refusing():
            member.expect(sum_id)
        return sum_id

    def mask(self, run: str, task_name: str, sum_id: SumId, numbers: np.ndarray) -> Arrays:
        """Masks the numbers of a sum, once.

        Args:
            run: The run.
            task_name: The name of the task.
            sum_id: The sum.
            numbers: The node's numbers, with its share of the noise.

        Returns:
            The masked numbers, sealed shares of every seed, and digests of the seeds.

        Raises:
            ProtocolError: The sum is past.
        """
        session = self._session(run)
        with refusing():
            masked_input = session.member.mask(sum_id, numbers)
        session.sum_id, session.task_name, session.sum_answers = sum_id, task_name, {}
        return secure_sum_messages.input_to_arrays(masked_input)

    def _session(self, run: str) -> SumSession:
        if run not in self._sessions:
            raise ProtocolError(RefusalReason.NO_KEYS)
        return self._sessions[run]


@contextmanager
def refusing() -> Iterator[None]:
    """Turns a member's refusal into the reason that goes over the wire.

    Yields:
        Nothing.

    Raises:
        ProtocolError: The member refused.
    """
    try:
        yield
    except MemberRefusal as refusal:
        raise ProtocolError(RefusalReason(refusal.why)) from None
