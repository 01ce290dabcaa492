"""Noise and clip that change by a plan made before training (Du et al. 2021, Dynamic DP-SGD)."""

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
    """C_t = C_0 rho_c^(t/T) and mu_t = mu_0 rho_mu^(-t/T), t = 0..T-1: the clip falls, and the
    noise C_t / mu_t falls faster.

    `every` is the number of steps that share the values of the first of them. The paper changes
    them at each step, its code once an epoch; fewer changes mean fewer kinds of events, and quicker
    accounting. Over rounds it is Dyn-DP-FedAvg.
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
        return self.clip * math.pow(self.clip_decay, self._progress(step))

    def multiplier_at(self, step: int) -> float:
        """Noise over clip, 1 / mu_t."""
        return math.pow(self.mu_decay, self._progress(step)) / self.mu

    def _progress(self, step: int) -> float:
        if not 0 <= step < self.steps:
            raise DpflError(
                f"The schedule has steps 0 to {self.steps - 1}, but none numbered {step}."
            )
        return (step - step % self.every) / self.steps

    def events(self, rate: float, steps: int | None = None) -> dict[Event, int]:
        """What the first `steps` (all) cost at this rate of Poisson sampling, as distinct events
        with their counts.

        The clip is no part of it: noise grows and falls with the clip.
        """
        sampling, until = Poisson(rate), self.steps if steps is None else min(steps, self.steps)
        spent: dict[Event, int] = {}
        for first in range(0, until, self.every):
            event = sampling.event(self.multiplier_at(first), 0)
            spent[event] = spent.get(event, 0) + min(self.every, until - first)
        return spent

    def claimed(self, rate: float, delta: float) -> float:
        """The paper's epsilon, by the limit theorem over a change at each step; it can lie below
        the truth.
        """
        return accountant("gdp-clt").epsilon(replace(self, every=1).events(rate), delta)

    def planned(self, epsilon: float, delta: float, rate: float, by: Accountant) -> DynamicPlan:
        """The same schedule with mu_0 set to spend epsilon by this accountant: `gdp-clt` as
        published, or one that proves.
        """
        noise_multiplier = noise_for(
            lambda z: replace(self, mu=1 / z).events(rate), epsilon, delta, by
        )
        return replace(self, mu=1 / noise_multiplier)
