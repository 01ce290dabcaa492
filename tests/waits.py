"""How tests wait. Processes that tests start import this file in no time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 600.0
"""Seconds after which a test takes a wait for a hang. A machine that is merely slow stays far below
them.
"""

T = TypeVar("T")


def wait_until(condition: Callable[[], T]) -> T:
    """Returns what the condition says, soon after that is true. It asks less and less often: many
    conditions ask another process, and would keep it busy.
    """
    end, nap = time.monotonic() + PATIENCE, 0.01
    while not (answer := condition()):
        assert time.monotonic() < end, f"it was not true within {PATIENCE:g} s"
        time.sleep(nap)
        nap = min(0.25, 1.2 * nap)
    return answer


class Clock:
    """Stands in for the module `time`. Its time passes when somebody sleeps, and at no other
    moment.
    """

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Ticking(Clock):
    """Every look at this clock takes a second."""

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now
