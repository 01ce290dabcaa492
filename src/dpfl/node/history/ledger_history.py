"""The past of a running node as it knows it, so that it notices a ledger that was set back.

A node signs a *head* of its ledger with every reply: the last row, its seal, and what the ledger
counts. Three parties can show a node what it signed: its own process, the owners of runs, and its
witness file. A node whose ledger does not include such a head has lost releases. It then refuses
all work (`rolled-back`) until its owner runs `dpfl ledger reconcile` (`rollback.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.errors import DpflError
from dpfl.node.history.rollback import missing, refuse_missing
from dpfl.node.history.signed_heads import own_heads
from dpfl.node.history.witness import NOTE, Witness
from dpfl.node.policy import NodePolicy
from dpfl.privacy import Ledger
from dpfl.protocol.head_words import heads_from_words
from dpfl.protocol.keys import public_key_hex
from dpfl.protocol.known_heads import KnownHeads
from dpfl.protocol.ledger_head import SignedHead, sign_head
from dpfl.refusals import ProtocolError, RefusalReason


def begin_start(policy: NodePolicy, ledger: Ledger, key: Ed25519PrivateKey) -> Witness | None:
    """Records one more start of a node in its ledger and in its witness.

    Args:
        policy: The node's policy.
        ledger: The node's ledger, open.
        key: The node's key.

    Returns:
        The witness of the policy, if it names one.

    Raises:
        DpflError: The ledger lacks what the node signed, or the witness is gone.
    """
    public_key = public_key_hex(key.public_key())
    refuse_missing(policy, ledger, own_heads(policy, public_key))
    witness = Witness(policy.witness, public_key) if policy.witness else None
    if witness and ledger.write_once(NOTE) and not witness.path.exists():
        raise DpflError(
            f"The witness {witness.path} is gone: mount its storage. If it is lost, make it anew "
            "with: dpfl ledger reconcile "
            f"{policy.folder / 'policy.toml'}"
        )
    ledger.start()
    KnownHeads(policy.folder).forget_own()  # the ledger includes all of them: it is the right one
    if witness:
        witness.begin(sign_head(ledger, key))
    return witness


@dataclass
class LedgerHistory:
    """The heads that this process has signed, and the checks of the ledger against them.

    Attributes:
        policy: The node's policy.
        public_key: The node's public key.
        joined_runs: Runs that were joined since the start. Their owners had a chance to show the
            heads that they remember.
    """

    policy: NodePolicy
    public_key: str
    _witness: Witness | None
    joined_runs: set[str] = field(default_factory=set)
    _last: SignedHead | None = None
    """What this process signed last: the disk may be set back while it runs."""

    def __post_init__(self) -> None:
        self._known_heads = KnownHeads(self.policy.folder)

    def refuse_rolled_back(self) -> None:
        """Refuses all work while the ledger lacks what the node signed.

        Raises:
            ProtocolError: The reason is `ROLLED_BACK`.
        """
        if self._known_heads.own:
            raise ProtocolError(RefusalReason.ROLLED_BACK)

    def sign(self, ledger: Ledger, key: Ed25519PrivateKey) -> SignedHead:
        """Signs the head of the ledger, which the ledger has to include from now on.

        Args:
            ledger: The node's ledger.
            key: The node's key.

        Returns:
            The head as it is now.
        """
        self._last = sign_head(ledger, key)
        return self._last

    def refuse_loss(self, ledger: Ledger, own: Collection[SignedHead] = ()) -> None:
        """Refuses all work from now on if the ledger lacks a head.

        The lacking heads are on disk before this raises.

        Args:
            ledger: The node's ledger.
            own: Heads of this node that somebody showed. What this process signed last is always
                compared too.

        Raises:
            ProtocolError: The reason is `ROLLED_BACK`.
        """
        if lacking := missing(ledger, [*own, *([self._last] if self._last else [])]):
            self._known_heads.keep_own(lacking)
            raise ProtocolError(RefusalReason.ROLLED_BACK)

    def refuse_unjoined(self, run: str, ledger: Ledger) -> None:
        """Compares the ledger with the history once more, before anything is debited.

        A disk can be set back while a node is stopped, so a run must join again after each start
        and show what it remembers. A disk can also be set back while the node runs.

        Args:
            run: The run.
            ledger: The node's ledger.

        Raises:
            ProtocolError: The run has not joined since the start (`JOIN_AGAIN`), or the ledger or
                the witness is not as this process left it (`ROLLED_BACK`).
        """
        if run not in self.joined_runs:
            raise ProtocolError(RefusalReason.JOIN_AGAIN)
        self.refuse_loss(ledger)
        if self._witness:
            self._witness.check()

    def take(self, words: Any, ledger: Ledger, owner: str, federation: Collection[str]) -> None:
        """Compares the heads that the owner of a run shows.

        Heads of other nodes of the run are kept, for whoever asks this node for them.

        Args:
            words: The heads, as they came.
            ledger: The node's ledger.
            owner: The public key of the run's owner.
            federation: The names of the run's nodes.

        Raises:
            ProtocolError: A head is malformed or forged (`BAD_WORDS`), or the ledger lacks one
                (`ROLLED_BACK`).
        """
        heads = heads_from_words(words)
        own = [signed_head for signed_head in heads if signed_head.head.node == self.policy.name]
        if any(signed_head.head.public_key != self.public_key for signed_head in own):
            raise ProtocolError(RefusalReason.BAD_WORDS)
        self.refuse_loss(ledger, own)
        self._known_heads.keep_others(
            owner,
            [
                signed_head
                for signed_head in heads
                if signed_head not in own and signed_head.head.node in federation
            ],
        )

    def others(self, federation: Collection[str], except_for: Collection[Any]) -> list[SignedHead]:
        """Lists the heads of other nodes that this node remembers.

        Args:
            federation: The names of the run's nodes.
            except_for: Heads, as words, that are left out.

        Returns:
            The heads.
        """
        heads = self._known_heads.others(set(federation) - {self.policy.name})
        return [signed_head for signed_head in heads if signed_head.to_words() not in except_for]

    def witness(self, head: SignedHead) -> None:
        """Appends a head to the witness, if the policy names one, before the reply leaves.

        Args:
            head: The signed head.

        Raises:
            ProtocolError: Somebody else wrote to the witness (`ROLLED_BACK`).
            DpflError: The witness cannot be written.
        """
        if self._witness:
            self._witness.append(head)
