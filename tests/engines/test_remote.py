"""Nodes elsewhere: letters that are lost, late, forged or odd cost their own reply, and no order
counts twice.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.engines.remote import RemoteEngine
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.protocol import messages
from tests.engines.wire import KEYS, SIZE, Answer, Wire, answered, good, round_request


def spent(remote: RemoteEngine) -> list[int]:
    counts = []
    for number in range(3):
        with closing(Ledger.read(remote.ledgers.path(number))) as ledger:
            counts.append(sum(ledger.spending().values()))
    return counts


def test_all_answer_and_every_order_is_counted_before_it_goes_out(make) -> None:
    remote = make(Wire(dict.fromkeys(KEYS, good)))
    replies = remote.run(round_request())
    assert [reply.update[0].item() for reply in replies] == [1.0, 2.0, 3.0]
    assert spent(remote) == [3, 3, 3]


def test_an_order_that_is_given_again_counts_once(make) -> None:
    remote = make(Wire(dict.fromkeys(KEYS, good)))
    remote.run(round_request())
    remote.run(round_request())
    assert spent(remote) == [3, 3, 3]
    remote.run(round_request(round=1))
    assert spent(remote) == [6, 6, 6]


def test_a_round_closes_at_the_deadline_with_those_who_answered(make) -> None:
    remote = make(Wire(dict.fromkeys(KEYS, good), silent={"b"}))
    began = remote.channel.transport.clock.now
    replies = remote.run(round_request())
    assert [bool(reply.failure) for reply in replies] == [False, True, False]
    assert "deadline" in replies[1].failure
    assert remote.channel.transport.clock.now == began + 60.0


def test_too_few_end_the_run_with_what_to_do(make) -> None:
    remote = make(Wire(dict.fromkeys(KEYS, good), silent={"b", "c"}), least=2)
    with pytest.raises(DpflError, match=r"1 of 3 nodes answered round 1 .* --resume"):
        remote.run(round_request())


def odd_update(update: np.ndarray, **beside: np.ndarray) -> Answer:
    def answer(name: str, asked: bytes, message: messages.SignedMessage) -> bytes:
        client = message.header["task"]["client"]
        words = {"kind": "reply", "reply": {"client": client, "inside": True}}
        return answered(name, asked, words, {"update": update, **beside})

    return answer


def garbage(name: str, asked: bytes, message: messages.SignedMessage) -> bytes:
    return b"DPFL2" + b"\xff" * 200


def announced(name: str, asked: bytes, message: messages.SignedMessage) -> bytes:
    """A signed head that announces 10 GB, and nothing behind it."""
    honest = good(name, asked, message)
    body = honest[:-64].replace(b'"shape":[5]', b'"shape":[2500000000]')
    length = int.from_bytes(body[5:9], "little") + len(body) - len(honest[:-64])
    body = body[:5] + length.to_bytes(4, "little") + body[9:]
    return body + KEYS[name].sign(body)


def not_finite(name: str, asked: bytes, message: messages.SignedMessage) -> bytes:
    honest = good(name, asked, message)
    body = honest[: -64 - 4 * SIZE] + np.full(SIZE, np.nan, np.float32).tobytes()
    return body + KEYS[name].sign(body)


def of_another(name: str, asked: bytes, message: messages.SignedMessage) -> bytes:
    body = good(name, asked, message)[:-64]
    return body + Ed25519PrivateKey.generate().sign(body)


@pytest.mark.parametrize(
    "answer",
    [
        garbage,
        announced,
        not_finite,
        of_another,
        odd_update(np.ones(SIZE + 1, np.float32)),
        odd_update(np.ones(SIZE, np.float64)),
        odd_update(np.ones((SIZE, 1), np.float32)),
        lambda name, asked, message: answered(name, asked, {"kind": "reply"}),
        lambda name, asked, message: answered(name, asked, {"kind": "what"}),
        lambda name, asked, message: answered(name, asked, {}),
        lambda name, asked, message: answered(name, asked, {"kind": ["reply"], "reply": None}),
        odd_update(np.ones(SIZE, np.float32), raw_slope=np.ones(2, np.float32)),
        odd_update(np.ones(SIZE, np.float32), raw_answer=np.ones(SIZE, np.float32)),
        lambda name, asked, message: answered(
            name, asked, {"kind": "refused", "reason": "no-room"}
        ),
        lambda name, asked, message: answered(
            name, asked, {"kind": "reply", "reply": 3}, run="ff" * 16
        ),
        lambda name, asked, message: answered(
            name, asked, {"kind": "reply", "reply": 3}, **{"from": "b"}
        ),
    ],
)
def test_an_odd_answer_is_dropped_and_named_and_the_others_stand(make, answer: Answer) -> None:
    replies = make(Wire({"a": answer, "b": good, "c": good})).run(round_request())
    assert replies[0].failure
    assert replies[0].update is None
    assert [reply.update[0].item() for reply in replies[1:]] == [2.0, 3.0]


def test_a_refusal_is_told_by_our_own_words(make) -> None:
    def refusing(name: str, asked: bytes, message: messages.SignedMessage) -> bytes:
        return answered(
            name,
            asked,
            {"kind": "refused", "reason": "over-budget", "sentence": "patient 7 has cancer"},
        )

    refusal = make(Wire({"a": refusing, "b": good, "c": good})).run(round_request())[0].refusal
    assert "budget" in refusal
    assert "patient" not in refusal


@pytest.mark.parametrize("reason", [[1], {}, None, "what"])
def test_a_refusal_without_a_reason_is_one_all_the_same(make, reason: object) -> None:
    def refusing(name: str, asked: bytes, message: messages.SignedMessage) -> bytes:
        return answered(name, asked, {"kind": "refused", "reason": reason})

    assert make(Wire({"a": refusing, "b": good, "c": good})).run(round_request())[0].refusal


ODD = [
    {"answer": 4},
    {"slope": 3},
    {"answer": 3, "slope": 3},
    {"update": SIZE, "answer": 3},
    {"update": SIZE},
]


@pytest.mark.parametrize("odd", ODD)
def test_an_answer_to_a_survey_is_as_long_as_the_others_and_nothing_else(
    make, odd: dict[str, int]
) -> None:
    def saying(**lengths: int) -> Answer:
        arrays = {
            name if name == "update" else f"raw_{name}": np.full(size, 1 / size, np.float32)
            for name, size in lengths.items()
        }
        words = {"kind": "reply", "reply": {"client": 0, "inside": True}}
        return lambda name, asked, message: answered(name, asked, words, arrays)

    given = round_request()
    asked = replace(
        given, tasks=tuple(replace(task, steps=0, query=LabelQuery(5.0)) for task in given.tasks)
    )
    replies = make(Wire({"a": saying(**odd), "b": saying(answer=3), "c": saying(answer=3)})).run(
        asked
    )
    assert "does not answer this task" in replies[0].failure
    assert replies[0].raw is None
    assert [len(reply.raw["answer"]) for reply in replies[1:]] == [3, 3]
