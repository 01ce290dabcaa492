"""How many local steps a round has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class StepFacts:
    """What is settled before training: R_s, the learning rate, sigma, C, d, and for each client q
    n_i and its weight.

    `energy` is E |noise|^2 over (sigma C)^2 in one release: d for plain Gaussian noise.
    """

    rounds: int | None
    rate: float
    multiplier: float
    clip: float
    parameters: int
    batches: Sequence[float]
    weights: Sequence[float]
    energy: float = 0.0


@dataclass(frozen=True)
class StepContext:
    """What a policy chooses by: R_c, what is left of it, the last tau (0 before the first), what it
    remembers, rounds made.
    """

    facts: StepFacts
    iterations: int
    left: int
    tau: int = 0
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    round: int = 0


@dataclass(frozen=True)
class RoundObservation:
    """A round as the server saw it: the model that it sent, what each client released and said
    beside it, and what public clients said. `again` asks the clients of a policy that asks for raw
    values once more, at the new model.
    """

    facts: StepFacts
    round: int
    steps: int
    vector: Tensor
    updates: Mapping[int, Tensor]
    raw: Mapping[int, Mapping[str, np.ndarray]] = field(default_factory=dict)
    public: Mapping[int, Mapping[str, np.ndarray]] = field(default_factory=dict)
    again: Callable[[], Mapping[int, Mapping[str, np.ndarray]]] = dict


class StepPolicy(Protocol):
    """How many local steps (tau) each round has."""

    @property
    def adaptive(self) -> bool:
        """Whether tau follows from what is seen in the run."""

    @property
    def asks_raw(self) -> bool:
        """Whether clients must send values without noise, which no epsilon covers."""

    @property
    def raw_values(self) -> tuple[str, ...]:
        """Which of them beside an update; what is asked about the new model is asked after it."""

    @property
    def asks_public(self) -> bool:
        """Whether public clients, whose data is nobody's secret, are asked for such values."""

    @property
    def extra(self) -> int:
        """How many releases a round has beside its steps: a noisy slope that is paid for, or
        none.
        """

    def next(self, now: StepContext) -> int:
        """tau for this round, before it is capped at what the budgets leave."""

    def learn(self, seen: RoundObservation, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What to remember after a round."""

    def total(self, rounds: int) -> int:
        """How many steps a client makes in this many rounds, at most."""

    def notes(self, memory: Mapping[str, Tensor]) -> Sequence[str]:
        """What is worth saying at the end, from what is remembered then."""


MOST_STEPS = 100_000


@part("steps.fixed")
@dataclass(frozen=True)
class FixedSteps:
    """The same tau in every round."""

    tau: int
    adaptive = asks_raw = asks_public = False
    raw_values = ()
    extra = 0

    def __post_init__(self) -> None:
        if not isinstance(self.tau, int) or not 1 <= self.tau <= MOST_STEPS:
            raise DpflError(
                f"tau must be at least 1 local step a round (and {MOST_STEPS:,} at most), not "
                f"{self.tau}."
            )

    def next(self, now: StepContext) -> int:
        return self.tau

    def learn(self, seen: RoundObservation, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {}

    def total(self, rounds: int) -> int:
        return rounds * self.tau

    def notes(self, memory: Mapping[str, Tensor]) -> Sequence[str]:
        return ()


def choose_steps(policy: StepPolicy, now: StepContext) -> int:
    """tau of a round; fixed beforehand it is what the policy says of all rounds, so that T is no
    output.
    """
    tau = policy.next(now)
    if tau != int(tau) or tau < 1:
        raise DpflError(f"{type(policy).__name__} must give at least 1 step a round, not {tau}.")
    if not policy.adaptive and tau != (
        said := policy.total(now.round + 1) - policy.total(now.round)
    ):
        raise DpflError(
            f"{type(policy).__name__} gives {tau} steps, but said beforehand (total) it would be "
            f"{said}; "
            "steps that follow from the run are adaptive."
        )
    return int(tau)
