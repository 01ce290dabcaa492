"""Letters in pieces, and what is no letter."""

from __future__ import annotations

import httpx
import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from dpfl.transports.flower import flower_messages
from dpfl.transports.flower.flower_messages import (
    PIECE,
    UnreadableMessage,
    pack,
    refuse_large,
    unpack,
)


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1])
def test_a_letter_comes_back_from_its_pieces(size: int) -> None:
    message = bytes(size)
    assert unpack(pack(message), size) == message
    if size:
        with pytest.raises(UnreadableMessage):
            unpack(pack(message), size - 1)


@pytest.mark.parametrize(
    "content",
    [
        {"000000": MetricRecord({"piece": 1})},
        {"000000": ArrayRecord()},
        {"000000": ConfigRecord({"piece": "text"})},
        {"000000": ConfigRecord({"piece": b"", "more": b""})},
        {"000001": ConfigRecord({"piece": b""})},
        {"model": ConfigRecord({"piece": b""})},
    ],
)
def test_what_is_no_letter_is_not_read(content: dict[str, object]) -> None:
    with pytest.raises(UnreadableMessage):
        unpack(RecordDict(content), 100)


@pytest.mark.parametrize("headers", [{"content-length": "101"}, {"content-length": "-1"}, {}])
def test_an_answer_that_is_too_large_is_not_read(headers: dict[str, str]) -> None:
    def body():  # type: ignore[no-untyped-def]
        raise AssertionError("the body was read")
        yield b""

    transport = httpx.MockTransport(
        lambda request: httpx.Response(200, headers=headers, content=body())
    )
    client = flower_messages.runtime(
        "http://nowhere", b"secret", flower_messages.TaskToken(), "SuperExec"
    )
    client._client = httpx.Client(transport=transport)
    refuse_large(client, 100)
    with pytest.raises(UnreadableMessage):
        client._client.get("http://nowhere")
