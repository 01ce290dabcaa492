"""The server's part in secure sums: who is asked again, and when nobody pays any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dpfl.engines.secure_sum import MOST_BARREN, SecureSumServer
from dpfl.errors import DpflError
from dpfl.protocol.messages import SignedMessage
from dpfl.secagg import SumId
from tests.secagg.summing import group

OF = group(4, 3)


def server(answers: Any = None) -> SecureSumServer:
    channel = SimpleNamespace(
        message=lambda name, kind, order, words, arrays=None: b"",
        ask=lambda requests, seconds, enough=None: answers or {},
    )
    return SecureSumServer(channel, OF, 1.0, 1.0)  # type: ignore[arg-type]


def test_nobody_pays_for_more_sums_than_a_few_that_come_to_nothing() -> None:
    sums = server()
    for _ in range(MOST_BARREN):
        sums.begin(SumId("session", 0), "0/train")
    with pytest.raises(DpflError, match="could not be opened"):
        sums.begin(SumId("session", 0), "0/train")


def test_too_few_members_end_the_set_up_before_anybody_pays_and_say_why() -> None:
    refusal = SignedMessage({"kind": "refused", "reason": "over-budget"}, {})
    sums = server({OF.names[0]: refusal})
    with pytest.raises(DpflError, match=r"0 of 4 nodes are available.*has no room for this task"):
        sums.ready(0, OF.names)
    assert not sums.session


def test_a_node_that_is_away_is_asked_after_1_2_and_4_rounds() -> None:
    sums = server()
    name = OF.names[0]
    sums.close(0, {}, [name])
    assert sums._away[name] == (1, 1)
    rounds = []
    for round in range(1, 9):
        before = sums._away[name]
        with pytest.raises(DpflError):
            sums.ready(round, OF.names)
        if sums._away[name] != before:
            rounds.append(round)
    assert rounds == [1, 3, 7]


def test_a_node_without_keys_gets_new_ones() -> None:
    sums = server()
    sums.here = frozenset(OF.names)
    answer = SignedMessage({"kind": "refused", "reason": "no-keys"}, {})
    sums.close(0, {OF.names[0]: answer}, [OF.names[0]])
    assert sums.here == set(OF.names[1:])
    assert not sums._away
