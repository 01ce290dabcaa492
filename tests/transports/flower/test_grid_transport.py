"""Messages over the `Grid` of a Flower server app, without Flower's processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from flwr.app import Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from dpfl.transports.flower.flower_messages import KIND, pack, unpack
from dpfl.transports.flower.grid_transport import GridTransport


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Flower gives to the process of a server app."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 7)


class EchoGrid:
    """Answers every message with itself; node 2 is lost."""

    def __init__(self) -> None:
        self.replies: list[Any] = []

    def get_node_ids(self) -> list[int]:
        return [1, 2]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            name = f"message-{len(self.replies)}"
            message.metadata.__dict__["_message_id"] = name
            lost = message.metadata.dst_node_id == 2
            content = Error(code=1) if lost else pack(unpack(message.content, 1 << 20))
            self.replies.append(Message(content, reply_to=message))
            names.append(name)
        return names

    def pull_messages(self, names: Iterable[str]) -> list[Any]:
        replies, self.replies = self.replies, []
        return [one for one in replies if one.metadata.reply_to_message_id in set(names)]


def test_answers_come_back_under_the_id_of_their_request() -> None:
    transport = GridTransport(EchoGrid(), 1 << 20)  # type: ignore[arg-type]
    assert transport.nodes() == ["1", "2"]
    first, second = transport.send("1", b"a message"), transport.send("2", b"another")
    deliveries = {one.request_id: one for one in transport.receive(1.0)}
    assert (deliveries[first].address, deliveries[first].message) == ("1", b"a message")
    assert deliveries[second].message is None, "lost"
    assert transport.receive(0.0) == []


def test_an_answer_that_is_too_large_counts_as_lost() -> None:
    transport = GridTransport(EchoGrid(), 5)  # type: ignore[arg-type]
    transport.send("1", b"a message")
    assert [one.message for one in transport.receive(1.0)] == [None]


def test_messages_are_of_our_own_kind() -> None:
    assert KIND == "query.dpfl"
    assert isinstance(pack(b""), RecordDict)
