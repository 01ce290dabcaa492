"""Clients one after another in this process."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply
from dpfl.engines import SerialEngine
from dpfl.engines.serial import room_for
from tests.engines.clients import request


def test_clients_train_on_one_thread_and_the_number_is_put_back_after_a_round(
    alone: SerialEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    reply = ClientRunner.reply

    def watched(self: ClientRunner, *asked: Any) -> ClientReply:
        seen.append(torch.get_num_threads())
        return reply(self, *asked)

    monkeypatch.setattr(ClientRunner, "reply", watched)
    torch.set_num_threads(2)
    try:
        alone.run(request(0, 1))
        assert (seen, torch.get_num_threads()) == ([1, 1], 2)
    finally:
        torch.set_num_threads(1)


def test_updates_of_a_round_reuse_the_memory_of_the_last(alone: SerialEngine) -> None:
    first = alone.run(request(0, 1))
    second = alone.run(request(2, round=1))
    assert second[0].update is not None
    assert first[0].update is not None
    assert second[0].update.data_ptr() == first[0].update.data_ptr()


def test_room_grows_only_where_it_is_too_small() -> None:
    rows = torch.empty(2, 3)
    assert room_for(rows, 1) is rows
    assert room_for(rows, 2) is rows
    assert room_for(rows, 3).shape == (3, 3)
