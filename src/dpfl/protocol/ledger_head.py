"""The head of a node's ledger, signed: how far the ledger has come, and what it counts.

A node sends the head of its ledger with every reply. Whoever keeps it can show it to the node
later. A node whose ledger does not include a head that it once signed has lost releases: its disk
was set back, or another copy of it was at work. A head says enough to count those releases again
(releases by event, and what was planned beyond them). Nothing in it depends on data.

Two heads of one node are compared by their *anchors*: seals of earlier rows of the chain. Head A
includes head B if A has an anchor at B's last row with B's seal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import Event, decode, encode, gaussian, subtract_events
from dpfl.privacy.ledger.chain import ChainTail
from dpfl.privacy.ledger.plans import proven_events
from dpfl.privacy.ledger.starts import ANCHOR_DIGITS, NodeStart, anchor_rows, spread_starts
from dpfl.privacy.mechanisms.noises.noise_shares import weakest_shares
from dpfl.protocol.keys import public_key_hex, sign

FORMAT = 2
"""The format with anchors; heads of format 1 have none."""
MOST_ANCHORS = 256
MOST_KINDS = 512
"""Kinds of releases that a head lists. The rest counts as releases without any noise."""
MOST_STARTS = 64
MOST_WHOLE = 1 << 53
MOST_HEADS = 32
"""Heads that a message shows."""
MOST_BYTES = 1 << 18
"""Bytes of all heads of a message together."""
HEADS_TO_KEEP = MOST_HEADS
"""Heads of one node that others remember, none of which is known to include another."""
MOST_OWN = 1 << 12
"""Heads of its own that a node looks at, none of which is known to include another."""

Kinds = tuple[tuple[Event, str, int], ...]
"""Releases by kind: the event, the mark of the shares of its noise (empty where the node added all
of it), and how many.
"""


@dataclass(frozen=True)
class LedgerHead:
    """The head of a ledger, which a node signs.

    Attributes:
        node: The node's name.
        public_key: The node's public key, in hexadecimal digits.
        unit: The unit that the ledger counts for.
        neighbours: The neighbour relation that the ledger counts for.
        rows: How many rows the ledger's chain has.
        seal: The seal of the last row.
        starts: The node's starts, the latest first.
        releases: What was debited.
        planned: What plans cover on top of it.
        anchors: Rows before the last, and the first digits of their seals.
    """

    node: str
    public_key: str
    unit: str
    neighbours: str
    rows: int
    seal: str
    starts: tuple[NodeStart, ...]
    releases: Kinds
    planned_counts: tuple[tuple[Event, int], ...]
    anchors: tuple[tuple[int, str], ...] = ()

    @property
    def tail(self) -> ChainTail:
        """The last row."""
        return ChainTail(self.rows, self.seal)

    @property
    def start(self) -> str:
        """The name of the start that signed it."""
        return self.starts[0].name if self.starts else ""

    @property
    def boot(self) -> int:
        """How many starts the node had had."""
        return self.starts[0].boot if self.starts else 0

    def to_words(self) -> dict[str, Any]:
        """Writes the head.

        Returns:
            The head as JSON has it; the signature is over these words.
        """
        return {
            "format": FORMAT if self.anchors else 1,
            "node": self.node,
            "public_key": self.public_key,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "rows": self.rows,
            "seal": self.seal,
            "starts": [[start.boot, start.name, start.end] for start in self.starts],
            "spent": [[encode(event), mark, count] for event, mark, count in self.releases],
            "planned": [[encode(event), count] for event, count in self.planned_counts],
        } | ({"anchors": [list(anchor) for anchor in self.anchors]} if self.anchors else {})

    def shows(self, other: LedgerHead) -> bool:
        """Decides whether this head alone shows that its chain went through another head.

        Args:
            other: A head of the same node.

        Returns:
            Whether this head includes the other. Heads without anchors are compared by starts.
        """
        if other.tail == self.tail:
            return True
        if not self.anchors:
            return any(
                start.name == other.start and other.rows <= start.end for start in self.starts
            )
        return dict(self.anchors).get(other.rows) == other.seal[:ANCHOR_DIGITS]


@dataclass(frozen=True)
class SignedHead:
    """A head with a signature.

    Attributes:
        head: The head.
        signature: The signature of the key that the head names, in hexadecimal digits.
    """

    head: LedgerHead
    signature: str

    def to_words(self) -> dict[str, Any]:
        """Writes the head and its signature.

        Returns:
            The words that a message carries.
        """
        return {"head": self.head.to_words(), "signature": self.signature}


def sign_head(ledger: Ledger, key: Ed25519PrivateKey) -> SignedHead:
    """Signs the head of a ledger as it is now.

    Args:
        ledger: The node's ledger.
        key: The node's key.

    Returns:
        What the ledger counts and where its chain ends, at one moment.

    Raises:
        DpflError: Others write to the ledger all the time.
    """
    for _ in range(8):
        tail, starts = ledger.tail, spread_starts(ledger.starts)
        totals, planned_counts = _counts(ledger)
        earlier = ledger.tails_at(anchor_rows(tail.links, starts))
        if ledger.tail == tail:
            break
    else:
        raise DpflError(
            f"The ledger {ledger.path} changes all the time; stop whatever else writes to it."
        )
    account = ledger.account
    head = LedgerHead(
        account.owner,
        public_key_hex(key.public_key()),
        account.unit,
        account.neighbours,
        tail.links,
        tail.seal,
        starts,
        _most_frequent(totals),
        tuple((event, count) for event, _, count in _most_frequent(planned_counts)),
        tuple((one.links, one.seal[:ANCHOR_DIGITS]) for one in earlier),
    )
    return SignedHead(head, sign(head.to_words(), key))


def _counts(ledger: Ledger) -> tuple[Counter[tuple[Event, str]], dict[tuple[Event, str], int]]:
    """Counts what was debited, by event and mark; and what plans cover on top of it, without
    marks.
    """
    by_mark: Counter[tuple[Event, str]] = Counter()
    total: Counter[Event] = Counter()
    for _, release, line, count, _ in ledger.debits():
        mark = release.split("/")[1] if "/" in release else ""
        by_mark[decode(line), mark if is_mark(mark) else ""] += count
        total[decode(line)] += count
    return by_mark, {
        (event, ""): count for event, count in subtract_events(proven_events(ledger), total).items()
    }


def is_mark(text: str) -> bool:
    """Decides whether a text marks releases whose noise is shared.

    Args:
        text: A part of a release's name.

    Returns:
        Whether it names shares of noise.
    """
    return weakest_shares([text]) is not None


def _most_frequent(counts: Mapping[tuple[Event, str], int]) -> Kinds:
    """Keeps the most frequent kinds. The rest counts as releases without any noise."""
    kinds = [(event, mark, count) for (event, mark), count in Counter(counts).most_common()]
    rest = sum(count for *_, count in kinds[MOST_KINDS:])
    return (*kinds[:MOST_KINDS], *([(gaussian(0.0), "", rest)] if rest else []))


@dataclass
class HeadSet:
    """Heads of one node, none of which includes another.

    Several heads in a set mean that the node's chain went different ways, as far as anybody can
    tell.

    Attributes:
        heads: The heads.
        most: How many heads are kept. The earliest go first.
    """

    heads: list[SignedHead] = field(default_factory=list)
    most: int = HEADS_TO_KEEP

    def add(self, one: SignedHead) -> bool:
        """Adds a head, and removes those that it includes.

        Args:
            one: The head.

        Returns:
            Whether it says anything new.
        """
        if any(other.head.shows(one.head) for other in self.heads):
            return False
        self.heads = [other for other in self.heads if not one.head.shows(other.head)]
        self.heads = sorted([*self.heads, one], key=_age)[-self.most :]
        return one in self.heads

    def remove(self, one: SignedHead) -> None:
        """Removes a head that another chain is known to include.

        Args:
            one: The head.
        """
        self.heads = [other for other in self.heads if other.head.tail != one.head.tail]

    def __iter__(self) -> Iterator[SignedHead]:
        """Iterates over the heads, the latest first."""
        return iter(sorted(self.heads, key=_age, reverse=True))

    def __len__(self) -> int:
        return len(self.heads)


def _age(one: SignedHead) -> tuple[int, int]:
    return one.head.boot, one.head.rows
