"""No logger may use the network."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _every_logger_is_offline(offline: list[object]) -> None:
    """Uses the fixture `offline` in every test of this folder."""
