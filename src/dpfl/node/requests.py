"""Reads the messages that reach a node, and writes the node's signed answers.

A message becomes a `Request` only if a key of the policy signed it, its size is allowed, and its
routing fields are well formed and name this node. Whatever else arrives is refused with a reason
that says nothing of the data. A refusal is a signed message too, so a server can tell it from one
that somebody else made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.node.policy import NodePolicy
from dpfl.protocol import messages
from dpfl.protocol.messages import EVERYONE, SignedMessage
from dpfl.protocol.value_forms import text
from dpfl.refusals import SENTENCES, ProtocolError, RefusalReason

ROUTING_FIELDS = ("kind", "run", "to", "order")
"""The fields of every message to a node: what is asked, for which run, of which node, and the name
of the task or step.
"""


@dataclass(frozen=True)
class Request:
    """A message to this node. The fields of one that could not be read are empty.

    Attributes:
        digest: The digest of the message's bytes. The answer repeats it.
        kind: What is asked for, such as "join" or "work".
        run: The run.
        task_name: The name of the task or step within the run.
        owner: The public key of the run's owner, who signed the message.
        fields: All fields of the message.
        arrays: The arrays of the message.
    """

    digest: str
    kind: str = ""
    run: str = ""
    task_name: str = ""
    owner: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


class RequestReader:
    """Reads requests and writes answers for one node."""

    def __init__(self, policy: NodePolicy, key: Ed25519PrivateKey) -> None:
        self._policy, self._key = policy, key

    def read(self, data: bytes) -> Request:
        """Reads a message.

        Args:
            data: The bytes as they came.

        Returns:
            The request, signed by an owner that the policy names.

        Raises:
            ProtocolError: The message is too large, malformed, signed by nobody that the policy
                names, or for another node.
        """
        owner, message = self._verify(data)
        routing = self._routing(message.header)
        return Request(
            digest=messages.digest(data),
            kind=routing["kind"],
            run=routing["run"],
            task_name=routing["order"],
            owner=owner,
            fields=message.header,
            arrays=message.arrays,
        )

    def _verify(self, data: bytes) -> tuple[str, SignedMessage]:
        """Finds the owner who signed a message."""
        # The owner's limit on the size comes before anything is parsed: what a stranger sends must
        # not cost memory. So it is enforced here, and not with the checks of a run or a task.
        for owner, key in self._policy.owners.items():
            try:
                return owner, messages.read(data, key, self._policy.allow.most_bytes)
            except ProtocolError as error:
                if error.reason != RefusalReason.BAD_SIGNATURE:
                    raise
        raise ProtocolError(RefusalReason.BAD_SIGNATURE)

    def _routing(self, fields: Mapping[str, Any]) -> dict[str, str]:
        routing = {name: text(fields.get(name)) for name in ROUTING_FIELDS}
        is_greeting = routing["kind"] == "ping" and routing["to"] == EVERYONE
        if routing["to"] != self._policy.name and not is_greeting:
            raise ProtocolError(RefusalReason.WRONG_NODE)
        if not (routing["run"].isalnum() and routing["run"].isascii()):
            raise ProtocolError(RefusalReason.BAD_WORDS)
        return routing

    def answer(
        self,
        request: Request,
        fields: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> bytes:
        """Writes an answer.

        Args:
            request: What is answered.
            fields: The answer's own fields, beside those that route it.
            arrays: The answer's arrays.

        Returns:
            The signed message.

        Raises:
            ProtocolError: The arrays cannot be sent, for example because a number is not finite.
        """
        routing = {
            "run": request.run,
            "order": request.task_name,
            "from": self._policy.name,
            "answers": request.digest,
        }
        return messages.write({**routing, **fields}, arrays or {}, self._key)

    def refusal(
        self, request: Request, reason: RefusalReason, fields: Mapping[str, Any] | None = None
    ) -> bytes:
        """Writes a refusal.

        Args:
            request: What is refused.
            reason: Why. The sentence beside it is fixed.
            fields: Further fields, such as the head of the ledger.

        Returns:
            The signed message.
        """
        words = {"kind": "refused", "reason": str(reason), "sentence": SENTENCES[reason]}
        return self.answer(request, {**words, **(fields or {})})
