"""The budget of a run: its limits on privacy, rounds, communication and time. The first that is
reached ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.privacy.accounting.calibration import check_target

MAX_ROUNDS = 1_000_000
"""The most rounds of any run."""


@part("budget")
@dataclass(frozen=True)
class Budget:
    """The limits of one run. At least one of them ends it.

    Attributes:
        epsilon: The largest proven epsilon; None for no limit.
        delta: The delta of every epsilon of the run.
        rounds: The number of rounds.
        bytes: The bytes that the server sends and receives.
        seconds: The wall time.
    """

    epsilon: float | None = None
    delta: float = 1e-5
    rounds: int | None = None
    bytes: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "rounds", "bytes", "seconds"):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise DpflError(f"budget.{name} must be a number, not {value!r}.")
        check_target(1.0 if self.epsilon is None else self.epsilon, self.delta)
        for name in ("rounds", "bytes", "seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise DpflError(
                    f"budget.{name} must be above 0, not {value}; leave it out for no limit."
                )
        if self.rounds is not None and not isinstance(self.rounds, int):
            raise DpflError(f"budget.rounds must be a whole number, not {self.rounds}.")
        if self.rounds is not None and self.rounds > MAX_ROUNDS:
            raise DpflError(f"budget.rounds may be {MAX_ROUNDS:,} at most, not {self.rounds}.")
        if all(limit is None for limit in (self.epsilon, self.rounds, self.bytes, self.seconds)):
            raise DpflError(
                "A run needs an end: give the budget an epsilon, rounds, bytes or seconds."
            )
