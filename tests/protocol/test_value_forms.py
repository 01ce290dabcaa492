"""Single values that came over a network."""

from __future__ import annotations

import math

import pytest

from dpfl.protocol import task_messages
from dpfl.refusals import ProtocolError


def test_numbers_end_at_1e30_on_either_side() -> None:
    for good in (0, 1, -1, 0.5, 1e30, -1e30):
        assert task_messages.number(good) == good
    for bad in (
        1.001e30,
        -1.001e30,
        10**31,
        -(10**31),
        math.inf,
        -math.inf,
        math.nan,
        True,
        "1",
        None,
        [1],
    ):
        with pytest.raises(ProtocolError):
            task_messages.number(bad)
