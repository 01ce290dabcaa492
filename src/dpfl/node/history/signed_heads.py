"""Collects every head that a node is known to have signed, from its disk and from other evidence.

A disk can be set back: a backup is restored, a folder is copied, a file is deleted. What the node
signed remains elsewhere: in the replies that it stored, in its witness file, and in what servers
and other nodes remember.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpfl.errors import DpflError
from dpfl.node.history.witness import Witness
from dpfl.node.policy import NodePolicy
from dpfl.privacy.accounting.events import decode
from dpfl.protocol import messages
from dpfl.protocol.head_words import head_from_words
from dpfl.protocol.keys import is_signed
from dpfl.protocol.known_heads import KnownHeads
from dpfl.protocol.ledger_head import MOST_OWN, HeadSet, LedgerHead, SignedHead
from dpfl.refusals import ProtocolError

DEEPEST = 6
"""Levels of a JSON file that are searched for what a node signed."""


def own_heads(policy: NodePolicy, public_key: str, files: Sequence[Path] = ()) -> HeadSet:
    """Collects the heads that the node signed, as far as anybody's record says.

    Args:
        policy: The node's policy.
        public_key: The node's public key. What another key signed is left out.
        files: More evidence: statements and heads as JSON, such as a server's `heads.json`.

    Returns:
        The furthest head of each start.

    Raises:
        DpflError: A file cannot be read, or the witness holds something else.
    """
    heads = HeadSet(most=MOST_OWN)
    for signed_head in _all_heads(policy, public_key, files):
        if (signed_head.head.node, signed_head.head.public_key) == (policy.name, public_key):
            heads.add(signed_head)
    return heads


def _all_heads(policy: NodePolicy, public_key: str, files: Sequence[Path]) -> Iterator[SignedHead]:
    yield from KnownHeads(policy.folder).own
    yield from _stored_replies(policy, public_key)
    if policy.witness:
        yield from Witness(policy.witness, public_key).heads()
    for file in files:
        try:
            yield from _in_json(json.loads(file.read_text()), public_key)
        except (OSError, ValueError, RecursionError) as error:
            raise DpflError(
                f"{file} cannot be read as JSON ({error}); give statements, or a server's "
                "heads.json."
            ) from error


def _stored_replies(policy: NodePolicy, public_key: str) -> Iterator[SignedHead]:
    """Reads the heads in replies that may have left the node."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
    for path in (policy.folder / "replies").glob("*.letter"):
        try:
            data = path.read_bytes()
            yield head_from_words(messages.read(data, key, len(data)).header.get("ledger_head"))
        except (OSError, ProtocolError):
            continue


def _in_json(value: Any, public_key: str, depth: int = 0) -> Iterator[SignedHead]:
    """Finds heads and statements anywhere in a JSON file."""
    if isinstance(value, dict):
        if value.keys() == {"head", "signature"}:
            try:
                yield head_from_words(value)
            except ProtocolError:
                return
        elif signed_head := _of_statement(value, public_key):
            yield signed_head
    if isinstance(value, dict | list) and depth < DEEPEST:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _in_json(part, public_key, depth + 1)


def _of_statement(value: dict[str, Any], public_key: str) -> SignedHead | None:
    """Reads a statement that has no head. Versions that signed no heads wrote such statements."""
    words, signature = value.get("statement"), value.get("signature")
    if not isinstance(words, dict) or "ledger_head" in words:
        return None
    if words.get("public_key") != public_key or not isinstance(signature, str):
        return None
    if not is_signed(words, signature, public_key):
        return None
    head = LedgerHead(
        node=words["node"],
        public_key=public_key,
        unit=words["unit"],
        neighbours=words["neighbours"],
        rows=words["ledger"]["rows"],
        seal=words["ledger"]["seal"],
        starts=(),
        releases=tuple((decode(line), "", int(count)) for line, count in words["releases"].items()),
        planned_counts=(),
    )
    return SignedHead(head, signature)
