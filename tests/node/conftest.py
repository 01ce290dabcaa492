"""Nodes that sum together, for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfl.privacy.mechanisms.integer_sum import IntegerSum
from tests.node.summing import Together


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
