"""What a node at work knows of its own past: heads that it is shown, runs that joined since it
started, and its witness.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.errors import DpflError
from dpfl.node.policy import NodePolicy
from dpfl.node.rollback import missing, own_heads, refuse_missing
from dpfl.node.witness import NOTE, Witness
from dpfl.privacy import Ledger
from dpfl.protocol.keys import raw
from dpfl.protocol.known_heads import KnownHeads
from dpfl.protocol.ledger_head import SignedHead, heads_from_words, sign_head
from dpfl.refusals import ProtocolError, RefusalReason


def begin_start(charter: NodePolicy, ledger: Ledger, key: Ed25519PrivateKey) -> Witness | None:
    """One more start of a node, in its ledger and in its witness.

    Args:
        charter: The node's policy.
        ledger: The node's own, open.
        key: The node's own.

    Returns:
        The witness of the policy, if it names one.

    Raises:
        DpflError: The ledger lacks what the node signed, or the witness is gone.
    """
    public_key = raw(key.public_key())
    refuse_missing(charter, ledger, own_heads(charter, public_key))
    witness = Witness(charter.witness, public_key) if charter.witness else None
    if witness and ledger.write_once(NOTE) and not witness.path.exists():
        raise DpflError(
            f"The witness {witness.path} is gone: mount its storage. If it is lost, make it anew "
            "with: dpfl ledger reconcile "
            f"{charter.folder / 'policy.toml'}"
        )
    ledger.start()
    KnownHeads(charter.folder).forget_own()  # all of them are included: the right ledger is back
    if witness:
        witness.begin(sign_head(ledger, key))
    return witness


@dataclass
class LedgerHistory:
    """Of one start of a node."""

    charter: NodePolicy
    public_key: str
    _witness: Witness | None
    joined: set[str] = field(default_factory=set)
    """Runs that were joined since: whoever asks for work was there to say what it remembers."""
    _last: SignedHead | None = None
    """What this process signed last: its disk may be set back beneath it."""

    def __post_init__(self) -> None:
        self._known = KnownHeads(self.charter.folder)

    def refuse_rolled_back(self) -> None:
        """Nothing is done for anybody while the ledger lacks what was signed."""
        if self._known.own:
            raise ProtocolError(RefusalReason.ROLLED_BACK)

    def sign(self, ledger: Ledger, key: Ed25519PrivateKey) -> SignedHead:
        """The head of the ledger as it is now, which it has to include from now on."""
        self._last = sign_head(ledger, key)
        return self._last

    def refuse_lost(self, ledger: Ledger, own: Collection[SignedHead] = ()) -> None:
        """A ledger that lacks one of these heads, or what this process signed last, ends all work;
        on disk before it is said.

        Raises:
            Bad: The ledger lacks something.
        """
        if lost := missing(ledger, [*own, *([self._last] if self._last else [])]):
            self._known.keep_own(lost)
            raise ProtocolError(RefusalReason.ROLLED_BACK)

    def refuse_unjoined(self, run: str, ledger: Ledger) -> None:
        """Before anything is debited: a disk is set back while a node is stopped, so that a run has
        to say again what it remembers; it may be set back while the node runs; and nobody else may
        have written to the witness."""
        if run not in self.joined:
            raise ProtocolError(RefusalReason.JOIN_AGAIN)
        self.refuse_lost(ledger)
        if self._witness:
            self._witness.check()

    def take(self, words: Any, ledger: Ledger, owner: str, federation: Collection[str]) -> None:
        """Heads that an owner of runs shows. One of this node's own that the ledger lacks ends all
        work; one that this node did not sign is a bad message; those of others are kept for whoever
        asks for them.

        Args:
            words: The heads, as they came.
            ledger: The node's own.
            owner: Who shows them.
            federation: The nodes of the run.

        Raises:
            Bad: A head is odd or forged, or the ledger lacks one.
        """
        heads = heads_from_words(words)
        own = [one for one in heads if one.head.node == self.charter.name]
        if any(one.head.public_key != self.public_key for one in own):
            raise ProtocolError(RefusalReason.BAD_WORDS)
        self.refuse_lost(ledger, own)
        self._known.keep_others(
            owner, [one for one in heads if one not in own and one.head.node in federation]
        )

    def others(self, federation: Collection[str], shown: Collection[Any]) -> list[SignedHead]:
        """Heads of other nodes of a run, but for those that were just shown."""
        heads = self._known.others(set(federation) - {self.charter.name})
        return [one for one in heads if one.to_words() not in shown]

    def witness(self, signed: SignedHead) -> None:
        """On other storage before the reply leaves, where the policy says so."""
        if self._witness:
            self._witness.append(signed)
