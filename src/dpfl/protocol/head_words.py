"""Reads heads of ledgers from a wire or a file, checks them, and verifies their signatures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import Event, encode
from dpfl.privacy.ledger.starts import ANCHOR_DIGITS, NodeStart
from dpfl.protocol.keys import is_signed
from dpfl.protocol.ledger_head import (
    FORMAT,
    MOST_ANCHORS,
    MOST_BYTES,
    MOST_HEADS,
    MOST_KINDS,
    MOST_STARTS,
    MOST_WHOLE,
    LedgerHead,
    SignedHead,
    is_mark,
)
from dpfl.protocol.value_forms import Form, digits, event, list_of, refuse, text, whole
from dpfl.refusals import ProtocolError

count = whole(1, MOST_WHOLE)
"""The form of rows and counts."""


def _start(value: Any) -> NodeStart:
    if type(value) is not list or len(value) != 3:
        refuse()
    return NodeStart(count(value[0]), digits(16)(value[1]), count(value[2]))


def _anchor(value: Any) -> tuple[int, str]:
    if type(value) is not list or len(value) != 2:
        refuse()
    return count(value[0]), digits(ANCHOR_DIGITS)(value[1])


def _kind(value: Any) -> tuple[Event, str, int]:
    if type(value) is not list or len(value) != 3:
        refuse()
    mark = text(value[1])
    if mark and not is_mark(mark):
        refuse()
    return event(value[0]), mark, count(value[2])


def _plan(value: Any) -> tuple[Event, int]:
    if type(value) is not list or len(value) != 2:
        refuse()
    return event(value[0]), count(value[1])


FORMS: Mapping[str, Form] = {
    "node": text,
    "public_key": digits(64),
    "unit": text,
    "neighbours": text,
    "rows": count,
    "seal": digits(64),
    "starts": list_of(_start, MOST_STARTS),
    "spent": list_of(_kind, MOST_KINDS + 1),
    "planned": list_of(_plan, MOST_KINDS + 1),
    "anchors": list_of(_anchor, MOST_ANCHORS),
}
FORMS_WITHOUT_ANCHORS = {name: form for name, form in FORMS.items() if name != "anchors"}
"""The fields of a head of format 1."""


def head_from_words(value: Any) -> SignedHead:
    """Reads a head, if the key that it names signed it. Whose key that is, the caller must know.

    Args:
        value: A value that came over a wire or out of a file.

    Returns:
        The head.

    Raises:
        ProtocolError: The value is no head, or its signature is wrong.
    """
    if type(value) is not dict or value.keys() != {"head", "signature"}:
        refuse()
    words, signature = value["head"], value["signature"]
    head = _parse(words)
    if type(signature) is not str or len(signature) != 128:
        refuse()
    if not is_signed(words, signature, head.public_key):
        refuse()
    return SignedHead(head, signature)


def _parse(words: Any) -> LedgerHead:
    if type(words) is not dict or type(words.get("format")) is not int:
        refuse()
    if words["format"] not in (1, FORMAT):
        refuse()
    has_anchors = words["format"] == FORMAT
    forms = FORMS if has_anchors else FORMS_WITHOUT_ANCHORS
    if words.keys() != {"format", *forms}:
        refuse()
    values = {name: form(words[name]) for name, form in forms.items()}
    head = LedgerHead(releases=values.pop("spent"), planned_counts=values.pop("planned"), **values)
    if has_anchors != bool(head.anchors) or any(row >= head.rows for row, _ in head.anchors):
        refuse()
    if head.starts and head.starts[0].end != head.rows:
        refuse()
    return head


def heads_from_words(value: Any) -> tuple[SignedHead, ...]:
    """Reads the heads that a message shows.

    Args:
        value: A value that came over a wire.

    Returns:
        The heads.

    Raises:
        ProtocolError: They are too many, or one of them is no head.
    """
    if type(value) is not list or len(value) > MOST_HEADS:
        refuse()
    return tuple(head_from_words(item) for item in value)


def fitting(heads: Iterable[SignedHead]) -> list[dict[str, Any]]:
    """Writes as many heads, from the first on, as a message may show.

    Args:
        heads: The heads, the most important first.

    Returns:
        The heads as words.
    """
    fitting_heads: list[dict[str, Any]] = []
    size = 0
    for one in heads:
        words = one.to_words()
        size += len(canonical(words))
        if size > MOST_BYTES or len(fitting_heads) >= MOST_HEADS:
            break
        fitting_heads.append(words)
    return fitting_heads


def check_in_statement(words: Mapping[str, Any]) -> LedgerHead | None:
    """Compares a statement with the head in it: same node, same releases.

    Args:
        words: The fields of the statement. Statements of earlier versions have no head.

    Returns:
        The head, if there is one that lists every kind of release.

    Raises:
        DpflError: The head says something else than the statement.
    """
    if "ledger_head" not in words:
        return None
    try:
        head = head_from_words(words["ledger_head"]).head
    except ProtocolError:
        raise DpflError(
            f"The head in the statement of {words['node']!r} is not one that its key signed."
        ) from None
    totals: Counter[str] = Counter()
    for kind, _, releases in head.releases:
        totals[encode(kind)] += releases
    position, names = words["ledger"], ("node", "public_key", "unit", "neighbours")
    of_statement = (*(words[name] for name in names), position["rows"], position["seal"])
    of_head = (head.node, head.public_key, head.unit, head.neighbours, head.rows, head.seal)
    is_complete = max(len(head.releases), len(head.planned_counts)) <= MOST_KINDS
    if of_head != of_statement or (is_complete and totals != words["releases"]):
        raise DpflError(
            f"The head in the statement of {words['node']!r} counts something else than the "
            "statement."
        )
    return head if is_complete else None
