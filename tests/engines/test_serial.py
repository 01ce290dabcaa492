"""Clients one after another in this process."""

from __future__ import annotations

import torch

from dpfl.engines import SerialEngine
from dpfl.engines.serial import room_for
from tests.engines.clients import request


def test_the_number_of_threads_is_put_back_after_a_round(alone: SerialEngine) -> None:
    before = torch.get_num_threads()
    alone.run(request(0))
    assert torch.get_num_threads() == before


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
