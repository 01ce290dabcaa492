"""Noise and clip norms by a plan fixed before training: Dynamic DP-SGD (Du et al. 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpfl.errors import DpflError
from dpfl.privacy.accounting.accountant import Accountant, accountant
from dpfl.privacy.accounting.calibration import noise_for
from dpfl.privacy.accounting.events import Event
from dpfl.privacy.mechanisms.sampling import Poisson


@dataclass(frozen=True)
class DynamicPlan:
    """C_t = C_0 rho_c^(t/T) and mu_t = mu_0 rho_mu^(-t/T), for t = 0..T-1.

    The clip norm falls, and the noise C_t / mu_t falls faster. The paper changes them at each step,
    its code once per epoch. Fewer changes mean fewer kinds of events, and quicker accounting. Over
    rounds the plan is Dyn-DP-FedAvg.

    Attributes:
        steps: The number T of steps.
        mu: The first privacy parameter mu_0, one over the noise multiplier.
        clip: The first clip norm C_0.
        clip_decay: The decay rho_c.
        mu_decay: The decay rho_mu.
        every: How many steps share the values of the first of them.
    """

    steps: int
    mu: float
    clip: float = 1.5
    clip_decay: float = 0.3
    mu_decay: float = 0.8
    every: int = 1

    def __post_init__(self) -> None:
        if self.steps < 1 or self.every < 1:
            raise DpflError(
                f"A schedule needs at least 1 step, and 1 between changes, not {self.steps} and "
                f"{self.every}."
            )
        for name, value in (("mu", self.mu), ("clip", self.clip)):
            if not (value > 0 and math.isfinite(value)):
                raise DpflError(
                    f"The {name} that a schedule starts from must be a positive number, not "
                    f"{value}."
                )
        for name, value in (("clip_decay", self.clip_decay), ("mu_decay", self.mu_decay)):
            if not 0 < value <= 1:
                raise DpflError(
                    f"{name} must lie above 0 and at most at 1 (no change), not {value}."
                )

    def clip_at(self, step: int) -> float:
        """Computes the clip norm C_t.

        Args:
            step: The step t.

        Returns:
            The clip norm.
        """
        return self.clip * math.pow(self.clip_decay, self._progress(step))

    def multiplier_at(self, step: int) -> float:
        """Computes the noise multiplier 1 / mu_t.

        Args:
            step: The step t.

        Returns:
            The noise over the clip norm.
        """
        return math.pow(self.mu_decay, self._progress(step)) / self.mu

    def _progress(self, step: int) -> float:
        if not 0 <= step < self.steps:
            raise DpflError(
                f"The schedule has steps 0 to {self.steps - 1}, but none numbered {step}."
            )
        return (step - step % self.every) / self.steps

    def events(self, rate: float, steps: int | None = None) -> dict[Event, int]:
        """Lists what the first steps cost under Poisson sampling. The clip norm is no part of it.

        Args:
            rate: The sampling rate.
            steps: How many steps; None for all.

        Returns:
            The distinct events with their counts.
        """
        sampling, until = Poisson(rate), self.steps if steps is None else min(steps, self.steps)
        counts: dict[Event, int] = {}
        for first in range(0, until, self.every):
            event = sampling.event(self.multiplier_at(first), 0)
            counts[event] = counts.get(event, 0) + min(self.every, until - first)
        return counts

    def claimed(self, rate: float, delta: float) -> float:
        """Computes the paper's epsilon by the limit theorem, over a change at each step.

        Args:
            rate: The sampling rate.
            delta: The target delta.

        Returns:
            The claimed epsilon, which can lie below the truth.
        """
        return accountant("gdp-clt").epsilon(replace(self, every=1).events(rate), delta)

    def plan(self, epsilon: float, delta: float, rate: float, by: Accountant) -> DynamicPlan:
        """Sets mu_0 so that the whole plan spends a budget.

        Args:
            epsilon: The target epsilon.
            delta: The target delta.
            rate: The sampling rate.
            by: The accountant: `gdp-clt` as published, or one that proves.

        Returns:
            The same plan with another mu_0.
        """
        noise_multiplier = noise_for(
            lambda z: replace(self, mu=1 / z).events(rate), epsilon, delta, by
        )
        return replace(self, mu=1 / noise_multiplier)
