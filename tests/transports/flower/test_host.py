"""A node's process: it answers until it is told to stop, and starts its SuperNode again."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dpfl.transports.flower import host


class SuperNode:
    """A SuperNode that ends once."""

    address, secret = "127.0.0.1:1", b"secret"

    def __init__(self) -> None:
        self.launches, self.stops, self._lives = 0, 0, [False, True]

    def launch(self) -> None:
        self.launches += 1

    def alive(self) -> bool:
        return self._lives.pop(0) if self._lives else True

    def words(self) -> str:
        return "out of memory"

    def stop(self) -> None:
        self.stops += 1


def test_a_supernode_that_ends_is_started_again_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, events, node = threading.Event(), list[tuple[str, str]](), SuperNode()

    class Executor:
        def __init__(self, *_: Any) -> None:
            self.answers = 0

        def step(self) -> bool:
            stop.set()
            return False

        def close(self) -> None:
            events.append(("closed", ""))

    monkeypatch.setattr(host, "Executor", Executor)
    monkeypatch.setattr(host, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(host, "LAST_PAUSE", 0.0)
    monkeypatch.setattr(
        host, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda seconds: None)
    )
    host.serve(node, bytes, 1, stop, lambda event, words: events.append((event, words)))  # type: ignore[arg-type]
    assert events == [
        ("started", ""),
        ("ended", "out of memory"),
        ("started", ""),
        ("closed", ""),
    ]
    assert (node.launches, node.stops) == (2, 1)
