"""No logger may use the network."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Whoever connects to anything beyond this machine is found out."""
    tried: list[Any] = []
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: Any) -> None:
        if not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1", "localhost"):
            return connect(self, address)
        tried.append(address)
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield tried
    assert tried == []
