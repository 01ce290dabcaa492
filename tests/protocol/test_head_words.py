"""Signed heads of a ledger as a message carries them: how many, how long, and of which form, just
at the borders.
"""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.privacy.accounting.events import encode, gaussian
from dpfl.privacy.ledger.starts import NodeStart
from dpfl.protocol.head_words import fitting, head_from_words, heads_from_words
from dpfl.protocol.keys import canonical, public_key_hex, sign
from dpfl.protocol.ledger_head import (
    MOST_BYTES,
    MOST_HEADS,
    MOST_KINDS,
    MOST_STARTS,
    LedgerHead,
    SignedHead,
)
from dpfl.refusals import ProtocolError

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
LINE = encode(gaussian(1.0))
HEAD = LedgerHead(
    "b",
    public_key_hex(KEY.public_key()),
    "sample",
    "add/remove one",
    9,
    "a" * 64,
    (NodeStart(1, "0" * 16, 9),),
    (),
    (),
)


def signed(head: LedgerHead = HEAD, **changes: Any) -> dict[str, Any]:
    words = head.to_words() | changes
    return {"head": words, "signature": sign(words, KEY)}


def refused(given: Any) -> bool:
    try:
        head_from_words(given)
    except ProtocolError as bad:
        return bad.reason == "bad-words"
    return False


def test_as_many_heads_as_a_message_may_show_and_no_more() -> None:
    one = signed()
    assert len(heads_from_words([one] * MOST_HEADS)) == MOST_HEADS == 32
    assert heads_from_words([]) == ()
    for odd in ([one] * (MOST_HEADS + 1), {}, (one,), "", "heads", None, 3, {"head": 1}):
        with pytest.raises(ProtocolError):
            heads_from_words(odd)


@pytest.mark.parametrize("list_of", ["spent", "planned", "starts"])
def test_lists_end_where_a_head_that_is_signed_does(list_of: str) -> None:
    """A node lists so many kinds, and one more for all that are left: its own head must be
    readable.
    """
    entry, most = {
        "spent": ([LINE, "", 1], MOST_KINDS + 1),
        "planned": ([LINE, 1], MOST_KINDS + 1),
        "starts": ([1, "0" * 16, 9], MOST_STARTS),
    }[list_of]
    assert not refused(signed(**{list_of: [entry] * most}))
    assert refused(signed(**{list_of: [entry] * (most + 1)}))
    for odd in ({}, None, [[*entry, 1]], [entry[:-1]], [{}], [None]):
        assert refused(signed(**{list_of: odd}))


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("rows", [1, 2**53], [0, -1, 2**53 + 1, 1.0, True, "1", None]),
        ("node", ["", "n" * 64], ["n" * 65, "a\nb", 1, None]),
        ("seal", ["0123456789abcdef" * 4], ["a" * 63, "a" * 65, "A" * 64, "g" * 64, 1]),
        (
            "spent",
            [[[LINE, "shared 3-1", 1]], [[LINE, "", 2**53]]],
            [[[LINE, "shared", 1]], [[LINE, "", 0]], [["{}", "", 1]]],
        ),
        ("spent", [], [[["x" * 1001, "", 1]], [[1, "", 1]], [[LINE, None, 1]]]),
        ("planned", [[[LINE, 7]]], [[[LINE, 0]], [[LINE, "7"]], [["[]", 7]]]),
        ("format", [1], [0, 2, None, "1"]),
    ],
)
def test_a_value_of_another_form_is_refused(field: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert not refused(signed(**{field: value, **({"starts": []} if field == "rows" else {})}))
    for value in bad:
        assert refused(signed(**{field: value, **({"starts": []} if field == "rows" else {})}))


def test_the_latest_start_ends_in_the_last_row() -> None:
    assert not refused(signed(starts=[[2, "1" * 16, 9], [1, "0" * 16, 5]]))
    assert not refused(signed(starts=[]))
    assert refused(signed(starts=[[2, "1" * 16, 8]]))
    assert refused(signed(starts=[[2, "1" * 16, 10]]))


def test_a_message_shows_as_many_heads_as_it_may_hold() -> None:
    short = SignedHead(HEAD, "0" * 128)
    assert len(fitting([short] * (MOST_HEADS + 5))) == MOST_HEADS
    long = SignedHead(
        LedgerHead(**{**vars(HEAD), "releases": ((gaussian(1.0), "", 1),) * MOST_KINDS}), "0" * 128
    )
    size = len(canonical(long.to_words()))
    assert 1 < MOST_BYTES // size < MOST_HEADS
    assert len(fitting([long] * MOST_HEADS)) == MOST_BYTES // size
