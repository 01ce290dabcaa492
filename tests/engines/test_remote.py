"""Nodes elsewhere: letters that are lost, late, forged or odd cost their own reply, and no order
counts twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.client.optimisers import SGD
from dpfl.client.task import ClientReply, ClientTask, LocalTraining, RoundRequest
from dpfl.engines.node_channel import NodeChannel
from dpfl.engines.remote import RemoteEngine, RemoteNode
from dpfl.errors import DpflError
from dpfl.privacy import Flat, Gaussian, Ledger, Poisson, Release
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.protocol import messages, task_messages
from dpfl.protocol.transport import Delivery
from tests.conftest import Clock

SIZE = 5
OWNER = Ed25519PrivateKey.generate()
KEYS = {name: Ed25519PrivateKey.generate() for name in ("a", "b", "c")}
Answer = Callable[[str, bytes, messages.SignedMessage], bytes | None]


def answered(
    name: str, asked: bytes, words: dict, arrays: dict | None = None, **changed: object
) -> bytes:
    letter = messages.read(asked, OWNER.public_key(), 1 << 20)
    head = {
        "run": letter.head["run"],
        "from": name,
        "order": letter.head["order"],
        "answers": messages.digest(asked),
    }
    return messages.write({**head, **words, **changed}, arrays or {}, KEYS[name])


def good(name: str, asked: bytes, letter: messages.SignedMessage) -> bytes:
    """A node's honest answer: an update of ones, times its place."""
    task = task_messages.task_from_words(letter.head["task"])
    update = torch.full((SIZE,), float(task.client + 1))
    words, arrays = task_messages.reply_to_words(ClientReply(task.client, update))
    return answered(name, asked, {"kind": "reply", "reply": words}, arrays)


@dataclass
class Wire:
    """A carrier on this machine: nodes answer at once, by functions; `lost` letters of a name come
    back as lost first. Time passes where nothing comes, and nowhere else."""

    nodes_: dict[str, Answer]
    lost: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    seen: list[tuple[str, str]] = field(default_factory=list)
    back: list[Delivery] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    def nodes(self) -> list[str]:
        return [f"at-{name}" for name in self.nodes_]

    def send(self, address: str, letter: bytes) -> str:
        name, ticket = address.removeprefix("at-"), str(len(self.seen))
        head = messages.read(letter, OWNER.public_key(), 1 << 20).head
        self.seen.append((name, head["kind"]))
        if name in self.silent:
            return ticket
        if head["kind"] == "ping":
            answer: bytes | None = answered(name, letter, {"kind": "pong"})
        elif self.lost.get(name, 0):
            self.lost[name] -= 1
            answer = None
        else:
            answer = self.nodes_[name](
                name, letter, messages.read(letter, OWNER.public_key(), 1 << 20)
            )
        self.back.append(Delivery(address, ticket, answer))
        return ticket

    def receive(self, seconds: float) -> list[Delivery]:
        found, self.back = self.back, []
        if not found:
            self.clock.sleep(seconds)
        return found

    def close(self) -> None: ...


@pytest.fixture
def make(tmp_path, monkeypatch):
    def made(wired: Wire, seconds: float = 60.0, least: int = 1) -> RemoteEngine:
        monkeypatch.setattr("dpfl.engines.node_channel.time", wired.clock)
        keys = {name: key.public_key() for name, key in KEYS.items()}
        correspondence = NodeChannel(wired, "00" * 16, OWNER, keys, 1 << 20)
        members = [RemoteNode(name, place, 100) for place, name in enumerate(KEYS)]
        ledgers = ClientLedgers(tmp_path, tuple(KEYS), "sample", "add or remove one")
        return RemoteEngine(correspondence, members, "run", ledgers, seconds, least, SIZE)

    return made


def order(round: int = 0, multiplier: float = 1.0) -> RoundRequest:
    samples = Release(Poisson(0.1), Flat(1.0), Gaussian(multiplier))
    task = ClientTask(round, 0, 3, LocalTraining(SGD(0.1)), Release(), samples)
    return RoundRequest(
        round, 3, tuple(replace(task, client=client) for client in range(3)), torch.zeros(SIZE)
    )


def spent(remote: RemoteEngine) -> list[int]:
    counts = []
    for number in range(3):
        with closing(Ledger.read(remote.ledgers.path(number))) as ledger:
            counts.append(sum(ledger.spending().values()))
    return counts


def test_all_answer_and_every_order_is_counted_before_it_goes_out(make) -> None:
    remote = make(Wire(dict.fromkeys(KEYS, good)))
    replies = remote.run(order())
    assert [reply.update[0].item() for reply in replies] == [1.0, 2.0, 3.0]
    assert spent(remote) == [3, 3, 3]


def test_an_order_that_is_given_again_counts_once(make) -> None:
    remote = make(Wire(dict.fromkeys(KEYS, good)))
    remote.run(order())
    remote.run(order())
    assert spent(remote) == [3, 3, 3]
    remote.run(order(round=1))
    assert spent(remote) == [6, 6, 6]


def test_a_lost_letter_is_sent_again_as_it_was(make) -> None:
    sent: list[bytes] = []

    def remembering(name: str, asked: bytes, letter: messages.SignedMessage) -> bytes:
        sent.append(asked)
        return good(name, asked, letter)

    wired = Wire({"a": remembering, "b": good, "c": good}, lost={"a": 2, "b": 1})
    assert all(reply.update is not None for reply in make(wired).run(order()))
    assert [kind for name, kind in wired.seen if name == "a"] == ["ping", "work", "work", "work"]
    assert len(sent) == 1


def test_a_round_closes_at_the_deadline_with_those_who_answered(make) -> None:
    remote = make(Wire(dict.fromkeys(KEYS, good), silent={"b"}))
    began = remote.channel.transport.clock.now
    replies = remote.run(order())
    assert [bool(reply.failed) for reply in replies] == [False, True, False]
    assert "deadline" in replies[1].failed
    assert remote.channel.transport.clock.now == began + 60.0


def test_too_few_end_the_run_with_what_to_do(make) -> None:
    remote = make(Wire(dict.fromkeys(KEYS, good), silent={"b", "c"}), least=2)
    with pytest.raises(DpflError, match=r"1 of 3 nodes answered round 1 .* --resume"):
        remote.run(order())


def odd_update(update: np.ndarray, **beside: np.ndarray) -> Answer:
    def answer(name: str, asked: bytes, letter: messages.SignedMessage) -> bytes:
        client = letter.head["task"]["client"]
        words = {"kind": "reply", "reply": {"client": client, "inside": True}}
        return answered(name, asked, words, {"update": update, **beside})

    return answer


def garbage(name: str, asked: bytes, letter: messages.SignedMessage) -> bytes:
    return b"DPFL2" + b"\xff" * 200


def announced(name: str, asked: bytes, letter: messages.SignedMessage) -> bytes:
    """A signed head that announces 10 GB, and nothing behind it."""
    honest = good(name, asked, letter)
    body = honest[:-64].replace(b'"shape":[5]', b'"shape":[2500000000]')
    length = int.from_bytes(body[5:9], "little") + len(body) - len(honest[:-64])
    body = body[:5] + length.to_bytes(4, "little") + body[9:]
    return body + KEYS[name].sign(body)


def not_finite(name: str, asked: bytes, letter: messages.SignedMessage) -> bytes:
    honest = good(name, asked, letter)
    body = honest[: -64 - 4 * SIZE] + np.full(SIZE, np.nan, np.float32).tobytes()
    return body + KEYS[name].sign(body)


def of_another(name: str, asked: bytes, letter: messages.SignedMessage) -> bytes:
    body = good(name, asked, letter)[:-64]
    return body + Ed25519PrivateKey.generate().sign(body)


FIRST: dict[str, bytes] = {}


def replayed(name: str, asked: bytes, letter: messages.SignedMessage) -> bytes:
    """Its first answer, whatever is asked."""
    return FIRST.setdefault(name, good(name, asked, letter))


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
        lambda name, asked, letter: answered(name, asked, {"kind": "reply"}),
        lambda name, asked, letter: answered(name, asked, {"kind": "what"}),
        lambda name, asked, letter: answered(name, asked, {}),
        lambda name, asked, letter: answered(name, asked, {"kind": ["reply"], "reply": None}),
        odd_update(np.ones(SIZE, np.float32), raw_slope=np.ones(2, np.float32)),
        odd_update(np.ones(SIZE, np.float32), raw_answer=np.ones(SIZE, np.float32)),
        lambda name, asked, letter: answered(name, asked, {"kind": "refused", "reason": "no-room"}),
        lambda name, asked, letter: answered(
            name, asked, {"kind": "reply", "reply": 3}, run="ff" * 16
        ),
        lambda name, asked, letter: answered(
            name, asked, {"kind": "reply", "reply": 3}, **{"from": "b"}
        ),
    ],
)
def test_an_odd_answer_is_dropped_and_named_and_the_others_stand(make, answer: Answer) -> None:
    replies = make(Wire({"a": answer, "b": good, "c": good})).run(order())
    assert replies[0].failed
    assert replies[0].update is None
    assert [reply.update[0].item() for reply in replies[1:]] == [2.0, 3.0]


def test_an_answer_of_another_round_is_no_answer(make) -> None:
    remote = make(Wire({"a": replayed, "b": good, "c": good}))
    assert remote.run(order())[0].update is not None
    assert "another" in remote.run(order(round=1))[0].failed


def test_a_refusal_is_told_by_our_own_words(make) -> None:
    def refusing(name: str, asked: bytes, letter: messages.SignedMessage) -> bytes:
        return answered(
            name,
            asked,
            {"kind": "refused", "reason": "over-budget", "sentence": "patient 7 has cancer"},
        )

    refused = make(Wire({"a": refusing, "b": good, "c": good})).run(order())[0].refused
    assert "budget" in refused
    assert "patient" not in refused


@pytest.mark.parametrize("reason", [[1], {}, None, "what"])
def test_a_refusal_without_a_reason_is_one_all_the_same(make, reason: object) -> None:
    def refusing(name: str, asked: bytes, letter: messages.SignedMessage) -> bytes:
        return answered(name, asked, {"kind": "refused", "reason": reason})

    assert make(Wire({"a": refusing, "b": good, "c": good})).run(order())[0].refused


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
        return lambda name, asked, letter: answered(name, asked, words, arrays)

    given = order()
    asked = replace(
        given, tasks=tuple(replace(task, steps=0, query=LabelQuery(5.0)) for task in given.tasks)
    )
    replies = make(Wire({"a": saying(**odd), "b": saying(answer=3), "c": saying(answer=3)})).run(
        asked
    )
    assert "not one to this order" in replies[0].failed
    assert replies[0].raw is None
    assert [len(reply.raw["answer"]) for reply in replies[1:]] == [3, 3]


def test_a_node_that_comes_later_is_found(make) -> None:
    wired = Wire({"a": good, "b": good})
    remote = make(wired)
    started, nodes = wired.clock.now, wired.nodes

    def later() -> list[str]:
        if wired.clock.now - started > 20.0:
            wired.nodes_["c"] = good
        return nodes()

    wired.nodes = later  # type: ignore[method-assign]
    assert all(reply.update is not None for reply in remote.run(order()))
