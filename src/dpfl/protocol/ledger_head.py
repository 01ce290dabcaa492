"""The head of a ledger's chain, signed by its node: how far the ledger had come, and what it
counted then.

It goes out with every reply. Whoever keeps it can show it to the node later; a node whose ledger
does not include a head that it once signed has lost releases. The head says enough to count them
again: releases by event, and what was planned beyond them. Nothing in it depends on data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import Event, decode, encode, gaussian, subtract_events
from dpfl.privacy.ledger.chain import ChainTail
from dpfl.privacy.ledger.plans import proven_events
from dpfl.privacy.ledger.starts import ANCHOR_DIGITS, NodeStart, anchor_rows, spread_starts
from dpfl.privacy.mechanisms.noise_shares import weakest_shares
from dpfl.protocol.keys import is_signed, raw, sign
from dpfl.refusals import ProtocolError, RefusalReason

FORMAT = 2
"""With anchors; heads of format 1 have none."""
MOST_ANCHORS = 256
MOST_KINDS = 512
"""Kinds of releases that a head lists; the rest would be counted as releases without any noise."""
MOST_STARTS = 64
MOST_WHOLE = 1 << 53
MOST_LINE = 1000
MOST_TEXT = 64
MOST_HEADS = 32
"""Heads that a message shows."""
MOST_BYTES = 1 << 18
"""Of all heads of a message together."""
KEPT = MOST_HEADS
"""Heads of one node that are remembered, none of which is known to be a part of another."""

MOST_OWN = 1 << 12
"""Heads of its own that a node looks at, none of which is known to be a part of another."""

Kinds = tuple[tuple[Event, str, int], ...]
"""An event, the mark of the shares of its noise (empty where it had all of it), and how many such
releases.
"""


@dataclass(frozen=True)
class LedgerHead:
    """What a node signs: whose ledger, its last row and seal, its starts (the latest first), what
    it counts, and anchors: seals of earlier rows, by which a head that was signed in the past is
    known as a part of this one."""

    node: str
    public_key: str
    unit: str
    neighbours: str
    rows: int
    seal: str
    starts: tuple[NodeStart, ...]
    spent: Kinds
    planned: tuple[tuple[Event, int], ...]
    anchors: tuple[tuple[int, str], ...] = ()

    @property
    def tail(self) -> ChainTail:
        return ChainTail(self.rows, self.seal)

    @property
    def start(self) -> str:
        """The name of the start that signed it."""
        return self.starts[0].name if self.starts else ""

    @property
    def boot(self) -> int:
        """How many starts there were."""
        return self.starts[0].boot if self.starts else 0

    def to_words(self) -> dict[str, Any]:
        """The head as JSON has it."""
        return {
            "format": FORMAT if self.anchors else 1,
            "node": self.node,
            "public_key": self.public_key,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "rows": self.rows,
            "seal": self.seal,
            "starts": [[start.boot, start.name, start.end] for start in self.starts],
            "spent": [[encode(event), mark, count] for event, mark, count in self.spent],
            "planned": [[encode(event), count] for event, count in self.planned],
        } | ({"anchors": [list(one) for one in self.anchors]} if self.anchors else {})

    def shows(self, other: LedgerHead) -> bool:
        """Whether this head alone shows that its chain went through another; those without anchors
        go by starts.
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
    """A head with the signature of the key that it names."""

    head: LedgerHead
    signature: str

    def to_words(self) -> dict[str, Any]:
        """The head and its signature, as a message carries them."""
        return {"head": self.head.to_words(), "signature": self.signature}


def sign_head(ledger: Ledger, key: Ed25519PrivateKey) -> SignedHead:
    """The head of a ledger as it is now.

    Args:
        ledger: The node's own.
        key: The node's own.

    Returns:
        What the ledger counts and where its chain ends, at one moment, signed.

    Raises:
        DpflError: Others write to the ledger all the time.
    """
    for _ in range(8):
        tail, starts, (spent, planned) = ledger.tail, spread_starts(ledger.starts), _counts(ledger)
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
        raw(key.public_key()),
        account.unit,
        account.neighbours,
        tail.links,
        tail.seal,
        starts,
        _bounded(spent),
        tuple((event, count) for event, _, count in _bounded(planned)),
        tuple((one.links, one.seal[:ANCHOR_DIGITS]) for one in earlier),
    )
    return SignedHead(head, sign(head.to_words(), key))


def _counts(ledger: Ledger) -> tuple[Counter[tuple[Event, str]], dict[tuple[Event, str], int]]:
    """What was debited, by event and mark; and what was fixed beforehand on top of it, without
    marks.
    """
    spent: Counter[tuple[Event, str]] = Counter()
    total: Counter[Event] = Counter()
    for _, release, line, count, _ in ledger.debits():
        mark = release.split("/")[1] if "/" in release else ""
        spent[decode(line), mark if _is_mark(mark) else ""] += count
        total[decode(line)] += count
    return spent, {
        (event, ""): count for event, count in subtract_events(proven_events(ledger), total).items()
    }


def _is_mark(mark: str) -> bool:
    return weakest_shares([mark]) is not None


def _bounded(spent: Mapping[tuple[Event, str], int]) -> Kinds:
    """The most frequent kinds; whatever does not fit counts as releases that no noise covers."""
    kinds = [(event, mark, count) for (event, mark), count in Counter(spent).most_common()]
    rest = sum(count for *_, count in kinds[MOST_KINDS:])
    return (*kinds[:MOST_KINDS], *([(gaussian(0.0), "", rest)] if rest else []))


def head_from_words(given: Any) -> SignedHead:
    """A head as it came, if the key that it names signed it; whose key that is, the caller knows.
    Anything else is `Bad`.
    """
    if type(given) is not dict or given.keys() != {"head", "signature"}:
        refuse()
    words = given["head"]
    if (
        type(words) is not dict
        or type(words.get("format")) is not int
        or words["format"] not in (1, FORMAT)
    ):
        refuse()
    forms = (
        FORMS
        if words["format"] == FORMAT
        else {name: form for name, form in FORMS.items() if name != "anchors"}
    )
    if words.keys() != {"format", *forms}:
        refuse()
    head = LedgerHead(**{name: form(words[name]) for name, form in forms.items()})
    if (words["format"] == FORMAT) != bool(head.anchors) or any(
        row >= head.rows for row, _ in head.anchors
    ):
        refuse()
    if head.starts and head.starts[0].end != head.rows:
        refuse()
    signature = given["signature"]
    if (
        type(signature) is not str
        or len(signature) != 128
        or not is_signed(words, signature, head.public_key)
    ):
        refuse()
    return SignedHead(head, signature)


def check_in_statement(words: Mapping[str, Any]) -> LedgerHead | None:
    """The head of a statement, where it has one, is of the same node and counts the same releases.

    Args:
        words: What the statement says; statements of earlier versions have no head.

    Returns:
        The head, if it lists every kind of release.

    Raises:
        DpflError: The head says something else.
    """
    if "ledger_head" not in words:
        return None
    try:
        head = head_from_words(words["ledger_head"]).head
    except ProtocolError:
        raise DpflError(
            f"The head in the statement of {words['node']!r} is not one that its key signed."
        ) from None
    spent: Counter[str] = Counter()
    for event, _, count in head.spent:
        spent[encode(event)] += count
    at, names = words["ledger"], ("node", "public_key", "unit", "neighbours")
    said = (*(words[name] for name in names), at["rows"], at["seal"])
    whole_list = max(len(head.spent), len(head.planned)) <= MOST_KINDS
    own = (head.node, head.public_key, head.unit, head.neighbours, head.rows, head.seal)
    if own != said or (whole_list and spent != words["releases"]):
        raise DpflError(
            f"The head in the statement of {words['node']!r} counts something else than the "
            "statement."
        )
    return head if whole_list else None


def heads_from_words(given: Any) -> tuple[SignedHead, ...]:
    """The heads that a message shows: few, and short together."""
    if type(given) is not list or len(given) > MOST_HEADS:
        refuse()
    return tuple(head_from_words(one) for one in given)


def fitting(heads: Iterable[SignedHead]) -> list[dict[str, Any]]:
    """As many of them, from the first on, as a message may show."""
    found: list[dict[str, Any]] = []
    size = 0
    for one in heads:
        words = one.to_words()
        size += len(canonical(words))
        if size > MOST_BYTES or len(found) >= MOST_HEADS:
            break
        found.append(words)
    return found


Form = Callable[[Any], Any]
"""A value as JSON holds it to the value of a field, as in `wire`, which needs torch."""


def refuse() -> NoReturn:
    raise ProtocolError(RefusalReason.BAD_WORDS)


def whole(value: Any) -> int:
    return value if type(value) is int and 1 <= value <= MOST_WHOLE else refuse()


def text(value: Any) -> str:
    return (
        value
        if type(value) is str and len(value) <= MOST_TEXT and value.isprintable()
        else refuse()
    )


def listed(form: Form, most: int) -> Form:
    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > most:
            refuse()
        return tuple(form(one) for one in value)

    return read


def _digits(length: int) -> Form:
    def form(value: Any) -> str:
        if (
            type(value) is not str
            or len(value) != length
            or not set(value) <= set("0123456789abcdef")
        ):
            refuse()
        return value

    return form


def _start(value: Any) -> NodeStart:
    if type(value) is not list or len(value) != 3:
        refuse()
    return NodeStart(whole(value[0]), _digits(16)(value[1]), whole(value[2]))


def _anchor(value: Any) -> tuple[int, str]:
    if type(value) is not list or len(value) != 2:
        refuse()
    return whole(value[0]), _digits(ANCHOR_DIGITS)(value[1])


def _event(value: Any) -> Event:
    if type(value) is not str or len(value) > MOST_LINE:
        refuse()
    try:
        return decode(value)
    except (DpflError, RecursionError):
        raise ProtocolError(RefusalReason.BAD_WORDS) from None


def _kind(value: Any) -> tuple[Event, str, int]:
    if type(value) is not list or len(value) != 3:
        refuse()
    mark = text(value[1])
    return _event(value[0]), mark if not mark or _is_mark(mark) else refuse(), whole(value[2])


def _plan(value: Any) -> tuple[Event, int]:
    if type(value) is not list or len(value) != 2:
        refuse()
    return _event(value[0]), whole(value[1])


FORMS: Mapping[str, Form] = {
    "node": text,
    "public_key": _digits(64),
    "unit": text,
    "neighbours": text,
    "rows": whole,
    "seal": _digits(64),
    "starts": listed(_start, MOST_STARTS),
    "spent": listed(_kind, MOST_KINDS + 1),
    "planned": listed(_plan, MOST_KINDS + 1),
    "anchors": listed(_anchor, MOST_ANCHORS),
}


@dataclass
class HeadSet:
    """Heads of one node, none of which shows another: the chains that went different ways, as far
    as anybody can tell.
    """

    heads: list[SignedHead] = field(default_factory=list)
    most: int = KEPT
    """The earliest go first."""

    def add(self, one: SignedHead) -> bool:
        """Whether it says anything new."""
        if any(known.head.shows(one.head) for known in self.heads):
            return False
        self.heads = [known for known in self.heads if not one.head.shows(known.head)]
        self.heads = sorted([*self.heads, one], key=_age)[-self.most :]
        return one in self.heads

    def remove(self, one: SignedHead) -> None:
        """Once it is known to be a part of another."""
        self.heads = [known for known in self.heads if known.head.tail != one.head.tail]

    def __iter__(self) -> Iterator[SignedHead]:
        """The latest first."""
        return iter(sorted(self.heads, key=_age, reverse=True))

    def __len__(self) -> int:
        return len(self.heads)


def _age(one: SignedHead) -> tuple[int, int]:
    return one.head.boot, one.head.rows
