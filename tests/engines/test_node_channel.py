"""Messages to nodes: lost ones are sent again, late nodes are found, refusals are in our words."""

from __future__ import annotations

import pytest

from dpfl.engines.node_channel import refusal_of
from dpfl.protocol import messages
from dpfl.refusals import SENTENCES, RefusalReason
from tests.engines.wire import Wire, good, round_request


def test_a_lost_letter_is_sent_again_as_it_was(make) -> None:
    sent: list[bytes] = []

    def remembering(name: str, asked: bytes, message: messages.SignedMessage) -> bytes:
        sent.append(asked)
        return good(name, asked, message)

    wired = Wire({"a": remembering, "b": good, "c": good}, lost={"a": 2, "b": 1})
    assert all(reply.update is not None for reply in make(wired).run(round_request()))
    assert [kind for name, kind in wired.seen if name == "a"] == ["ping", "work", "work", "work"]
    assert len(sent) == 1


FIRST: dict[str, bytes] = {}


def replayed(name: str, asked: bytes, message: messages.SignedMessage) -> bytes:
    """Its first answer, whatever is asked."""
    return FIRST.setdefault(name, good(name, asked, message))


def test_an_answer_of_another_round_is_no_answer(make) -> None:
    remote = make(Wire({"a": replayed, "b": good, "c": good}))
    assert remote.run(round_request())[0].update is not None
    assert "another" in remote.run(round_request(round=1))[0].failure


def test_a_node_that_comes_later_is_found(make) -> None:
    wired = Wire({"a": good, "b": good})
    remote = make(wired)
    started, nodes = wired.clock.now, wired.nodes

    def later() -> list[str]:
        if wired.clock.now - started > 20.0:
            wired.nodes_["c"] = good
        return nodes()

    wired.nodes = later  # type: ignore[method-assign]
    assert all(reply.update is not None for reply in remote.run(round_request()))


def test_a_refusal_is_one_of_our_own_sentences() -> None:
    assert refusal_of({"reason": "over-budget"}) == SENTENCES[RefusalReason("over-budget")]


@pytest.mark.parametrize("head", [{}, {"reason": [1]}, {"reason": "patient 7 has cancer"}])
def test_other_reasons_are_not_passed_on(head: dict) -> None:
    assert refusal_of(head) == "The node refuses, for a reason that is not known here."
