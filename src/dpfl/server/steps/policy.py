"""Policies that choose the number of local steps (tau) of each round.

    >>> FixedSteps(5).total(rounds=100)  # the steps that 100 rounds take, and so what they cost
    500

A `StepPolicy` chooses tau, and the coordinator calls it in this order in every round:

1. `choose_steps` asks `policy.next(context)` for tau. `StepContext` says what is known: settings
   (`StepFacts`), the steps that privacy still allows, and what the policy remembers.
2. The coordinator caps tau at the steps that the budget leaves, and the clients train.
3. `policy.learn(observation, memory)` reads the round as the server saw it, and returns what to
   remember. The memory is part of every checkpoint.

Policies differ in what they look at, because that decides what they cost:

- A policy that is not `adaptive` knows tau before training. `total` says so, and `choose_steps`
  holds it to that, so tau tells nobody anything about the data.
- An adaptive policy may follow released values. That is post-processing and costs nothing.
- A policy with `paid_slopes` = 1 asks for one more release in each round, which clients pay for.
- A policy that `asks_raw` values has no guarantee. It exists for comparison with published systems.

`FixedSteps` is the usual policy. The adaptive policies of the papers are in `adaptive.py`.
"""

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
    """The facts of a run that a policy knows.

    Attributes:
        rounds: The rounds R_s of the run; None where the budget does not limit them.
        rate: The learning rate eta of the clients.
        multiplier: The noise multiplier sigma.
        clip: The clip norm C.
        parameters: How many numbers d the steps train.
        batches: The expected batch q n_i of each client.
        weights: The weight of each client.
        energy: E |noise|^2 over (sigma C)^2 in one release; d for plain Gaussian noise.
        divisors: What each client divides its noisy sums by: the expected batch, or one number for
            all.
    """

    rounds: int | None
    rate: float
    multiplier: float
    clip: float
    parameters: int
    batches: Sequence[float]
    weights: Sequence[float]
    energy: float = 0.0
    divisors: Sequence[float] = ()


@dataclass(frozen=True)
class StepContext:
    """The context in which a policy chooses tau.

    Attributes:
        step_facts: What it knows of the run.
        iterations: How many steps R_c privacy allows in the whole run.
        remaining: How many of them are still to come.
        tau: The steps of the last round; 0 before the first.
        memory: What the policy remembers.
        round: How many rounds came before this one.
    """

    step_facts: StepFacts
    iterations: int
    remaining: int
    tau: int = 0
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    round: int = 0


@dataclass(frozen=True)
class RoundObservation:
    """A round as the server saw it.

    Attributes:
        step_facts: What a policy knows of the run.
        round: How many rounds came before this one.
        steps: The local steps of the round.
        vector: The model that the server sent.
        updates: The update that each client released.
        raw: The values that clients sent beside their updates.
        public: The same values from public clients.
        again: Asks the clients once more, at the new model, and returns their values. Only a policy
            that asks for raw values may call it.
    """

    step_facts: StepFacts
    round: int
    steps: int
    vector: Tensor
    updates: Mapping[int, Tensor]
    raw: Mapping[int, Mapping[str, np.ndarray]] = field(default_factory=dict)
    public: Mapping[int, Mapping[str, np.ndarray]] = field(default_factory=dict)
    again: Callable[[], Mapping[int, Mapping[str, np.ndarray]]] = dict


class StepPolicy(Protocol):
    """Chooses the number of local steps (tau) of each round."""

    @property
    def adaptive(self) -> bool:
        """Whether tau follows from what is seen in the run."""

    @property
    def asks_raw(self) -> bool:
        """Whether clients must send values without noise, which no epsilon covers."""

    @property
    def raw_values(self) -> tuple[str, ...]:
        """Which of these values clients send beside an update. Values about the new model follow
        after the round.
        """

    @property
    def asks_public(self) -> bool:
        """Whether public clients are asked for such values."""

    @property
    def reads_released(self) -> bool:
        """Whether it estimates mu from noisy sums, which must then be divided by q n."""
        return False

    @property
    def paid_slopes(self) -> int:
        """How many releases a round has beside its steps: 1 for a noisy slope that is paid for,
        else 0.
        """

    def next(self, context: StepContext) -> int:
        """Chooses tau for a round, before it is capped at what the budgets leave.

        Args:
            context: What the policy chooses by.

        Returns:
            The local steps, at least 1.
        """

    def learn(
        self, observation: RoundObservation, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Learns from a round.

        Args:
            observation: The round as the server saw it.
            memory: What the policy remembered before.

        Returns:
            What to remember from now on.
        """

    def total(self, rounds: int) -> int:
        """Bounds how many steps a client takes.

        Args:
            rounds: A number of rounds, from the first on.

        Returns:
            The most steps in these rounds; exactly that many where the policy is not adaptive.
        """

    def notes(self, memory: Mapping[str, Tensor]) -> Sequence[str]:
        """Writes what the record of a run should say about the policy.

        Args:
            memory: What the policy remembers at the end.

        Returns:
            Sentences.
        """


MOST_STEPS = 100_000
"""The most local steps of a round."""


@part("steps.fixed")
@dataclass(frozen=True)
class FixedSteps(StepPolicy):
    """The same tau in every round.

    Attributes:
        tau: The local steps of a round.
    """

    tau: int
    adaptive = asks_raw = asks_public = False
    raw_values = ()
    paid_slopes = 0

    def __post_init__(self) -> None:
        if not isinstance(self.tau, int) or not 1 <= self.tau <= MOST_STEPS:
            raise DpflError(
                f"tau must be from 1 to {MOST_STEPS:,} local steps per round, not {self.tau}."
            )

    def next(self, context: StepContext) -> int:
        return self.tau

    def learn(
        self, observation: RoundObservation, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return {}

    def total(self, rounds: int) -> int:
        return rounds * self.tau

    def notes(self, memory: Mapping[str, Tensor]) -> Sequence[str]:
        return ()


def choose_steps(policy: StepPolicy, context: StepContext) -> int:
    """Chooses tau for a round, and checks it.

    A policy that is not adaptive must take the steps that `total` gives for the round. Then the
    number of steps tells nobody anything about the data.

    Args:
        policy: The policy.
        context: What it chooses by.

    Returns:
        The local steps, before they are capped at what the budgets leave.

    Raises:
        DpflError: tau is not a whole number of at least 1, or not what `total` gives.
    """
    tau = policy.next(context)
    if tau != int(tau) or tau < 1:
        raise DpflError(f"{type(policy).__name__} must give at least 1 step per round, not {tau}.")
    total_steps = policy.total(context.round + 1) - policy.total(context.round)
    if not policy.adaptive and tau != total_steps:
        raise DpflError(
            f"{type(policy).__name__} returned {tau} steps, but its total() announced "
            f"{total_steps}. Declare steps that depend on the run as adaptive."
        )
    return int(tau)
