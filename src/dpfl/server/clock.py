"""When a run has no round left, or no time for one."""

from __future__ import annotations

import time

from dpfl.privacy import Budget
from dpfl.server.state import RunState


class RunClock:
    """Counts on from the seconds of the state, and knows the longest round of this process."""

    def __init__(self, state: RunState) -> None:
        self._start = time.monotonic() - state.seconds
        self._longest, self._made = 0.0, state.round

    def ends(self, budget: Budget, state: RunState) -> str:
        """Why it ends, "rounds" or "seconds", where the next round would pass the budget."""
        now = time.monotonic() - self._start
        to_come, state.seconds = self._round_to_come(now, state), now
        if budget.rounds is not None and state.round >= budget.rounds:
            return "rounds"
        return "seconds" if budget.seconds is not None and now + to_come >= budget.seconds else ""

    def _round_to_come(self, now: float, state: RunState) -> float:
        """How long it may take: as the longest so far, of this process or on average; nothing is
        known before the first.
        """
        if state.round > self._made:
            self._longest = max(self._longest, now - state.seconds)
        self._made = state.round
        return max(self._longest, now / state.round if state.round else 0.0)
