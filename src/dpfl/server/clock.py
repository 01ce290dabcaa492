"""The clock of a run: it ends the run when no round or no time is left."""

from __future__ import annotations

import time

from dpfl.privacy import Budget
from dpfl.server.state import RunState


class RunClock:
    """Measures how long a run takes, across all processes that it ran in.

    Args:
        state: The run, with the seconds that it has taken so far.
    """

    def __init__(self, state: RunState) -> None:
        self._start = time.monotonic() - state.seconds
        self._longest, self._first_round = 0.0, state.round

    def ends(self, budget: Budget, state: RunState) -> str:
        """Decides whether the next round would exceed the budget of rounds or of seconds.

        Writes the seconds so far into the state.

        Args:
            budget: The budget of the run.
            state: The run as it stands.

        Returns:
            "rounds" or "seconds", whichever ends the run; empty where the run goes on.
        """
        now = time.monotonic() - self._start
        to_come, state.seconds = self._round_to_come(now, state), now
        if budget.rounds is not None and state.round >= budget.rounds:
            return "rounds"
        return "seconds" if budget.seconds is not None and now + to_come >= budget.seconds else ""

    def _round_to_come(self, now: float, state: RunState) -> float:
        """Estimates how long the next round takes: as long as the longest round of this process, or
        the average of all if that is longer; 0 before the first.
        """
        if state.round > self._first_round:
            self._longest = max(self._longest, now - state.seconds)
        self._first_round = state.round
        return max(self._longest, now / state.round if state.round else 0.0)
