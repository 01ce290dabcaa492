"""The interface of transports, which every carrier of messages has."""

from __future__ import annotations

import inspect

from dpfl.protocol.transport import Delivery, Transport
from dpfl.transports.flower.flower_transport import FlowerTransport
from dpfl.transports.flower.grid_transport import GridTransport


def test_every_transport_has_the_parameters_of_the_interface() -> None:
    for kind in (FlowerTransport, GridTransport):
        for name in ("nodes", "send", "receive", "close"):
            expected = inspect.signature(getattr(Transport, name)).parameters
            assert list(inspect.signature(getattr(kind, name)).parameters) == list(expected)


def test_a_lost_message_has_no_answer() -> None:
    assert Delivery("1", "request", None).message is None
