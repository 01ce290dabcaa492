"""Nodes by themselves and nodes that sum together, for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfl.node.service import Service
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from tests.node.loopback import Asked, Open, join, new_node, write_policy
from tests.node.summing import Together


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens nodes, which are closed at the end; a name that was used before is the same folder."""
    services: list[Service] = []

    def start(place: str = "b", /, **changes: Any) -> Asked:
        folder = tmp_path / place
        policy = write_policy(folder, **changes) if folder.exists() else new_node(folder, **changes)
        node = Asked.open(policy)
        services.append(node.service)
        return node

    yield start
    for service in services:
        service.close()


@pytest.fixture
def node(opened: Open) -> Asked:
    """A node that has joined."""
    asked = opened()
    assert asked(join()).header["kind"] == "joined"
    return asked


@pytest.fixture
def together(tmp_path: Path) -> Iterator[Together]:
    made = Together(tmp_path)
    yield made
    made.close()


@pytest.fixture
def begun(together: Together) -> tuple[Together, str]:
    """A run that all four joined, and its session."""
    together.joined()
    return together, together.set_up()


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The numbers that nodes made, before any mask."""
    made: list[np.ndarray] = []
    numbers = IntegerSum.numbers

    def seen(self: IntegerSum, *given: Any) -> np.ndarray:
        made.append(numbers(self, *given))
        return made[-1].copy()

    monkeypatch.setattr(IntegerSum, "numbers", seen)
    return made
