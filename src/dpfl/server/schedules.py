"""Releases that change from round to round: by a plan made before training, or by what was released
before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy import Flat, Release
from dpfl.privacy.mechanisms.noise import FlooredGaussian
from dpfl.privacy.mechanisms.schedules import DynamicPlan
from dpfl.server.released_estimates import released_gradient
from dpfl.server.steps.policy import RoundObservation

if TYPE_CHECKING:
    from torch import Tensor


class Schedule(Protocol):
    """The private release of each round, by a plan or by what was released."""

    @property
    def follows(self) -> bool:
        """Whether it looks at the clients' noisy gradients."""

    def for_rounds(self, rounds: int) -> Schedule:
        """For a run of this many rounds."""

    def least(self, first: Release, round: int) -> Release:
        """With the least noise that this round can have, whatever comes before it, which is what is
        accounted for.
        """

    def now(self, first: Release, round: int, memory: Mapping[str, Tensor]) -> Release:
        """The release of this round; `first` is that of the first."""

    def own(self, release: Release, client: int, memory: Mapping[str, Tensor]) -> Release:
        """What one client makes of the release of the round."""

    def learn(
        self, seen: RoundObservation, validate: Validate, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """What to remember after a round; `validate` is the loss of a model on public data."""


Validate = Callable[["Tensor"], float]


def followed_release(
    schedule: Schedule, first: Release, round: int, memory: Mapping[str, Tensor]
) -> Release:
    """The release of this round; refused where it is not counted as was said beforehand."""
    return _counted(schedule, schedule.now(first, round, memory), schedule.least(first, round))


def own_of(
    schedule: Schedule | None, release: Release | None, client: int, memory: Mapping[str, Tensor]
) -> Release | None:
    """What one client makes of it, which costs the same."""
    if schedule is None or release is None:
        return release
    return _counted(schedule, schedule.own(release, client, memory), release)


def _counted(schedule: Schedule, release: Release, said: Release) -> Release:
    same = (
        release.sampling == said.sampling
        and release.divide_by_drawn == said.divide_by_drawn
        and release.noise_multiplier == said.noise_multiplier
    )
    if not same:
        raise DpflError(
            f"{type(schedule).__name__} must count a round as it said beforehand: give its noise a "
            "floor (AtLeast)."
        )
    return release


def with_level(release: Release, level: float) -> Release:
    return replace(release, clip=Flat(level))


@part("schedule.decay")
@dataclass(frozen=True)
class DecaySchedule:
    """Dynamic DP-SGD (Du et al. 2021): C falls to `clip` times its start, and sigma to `noise`
    times, over the run.

    The level moves every round and costs nothing; the noise moves in `phases`, so that there are
    few kinds of events.
    """

    clip: float = 0.3
    noise: float = 0.8
    phases: int = 8
    rounds: int = 1
    follows = False

    def __post_init__(self) -> None:
        if self.phases < 1:
            raise DpflError(f"A schedule needs at least 1 phase, not {self.phases}.")
        self._plan(1.0, 1.0, 1)

    def _plan(self, level: float, multiplier: float, every: int) -> DynamicPlan:
        return DynamicPlan(self.rounds, 1 / multiplier, level, self.clip, self.noise, every)

    def for_rounds(self, rounds: int) -> DecaySchedule:
        return replace(self, rounds=rounds)

    def least(self, first: Release, round: int) -> Release:
        assert first.noise is not None
        start = first.clip.clip_norm, first.noise.noise_multiplier
        noise = self._plan(*start, math.ceil(self.rounds / self.phases)).multiplier_at(round)
        return with_level(first, self._plan(*start, 1).clip_at(round)).with_noise(noise)

    def now(self, first: Release, round: int, memory: Mapping[str, Tensor]) -> Release:
        return self.least(first, round)

    def own(self, release: Release, client: int, memory: Mapping[str, Tensor]) -> Release:
        return release

    def learn(
        self, seen: RoundObservation, validate: Validate, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return {}


@part("schedule.following")
@dataclass(frozen=True)
class AdaptiveSchedule:
    """Adap DP-FL (Fu et al. 2022): a client's C is `alpha` times the norm of its own last noisy
    gradients, the energy of their noise removed; its sigma falls by `beta` after each round in
    which the public loss of its own model has fallen `patience` times running.

    The mean of clipped gradients is shorter than the clip, so C would follow itself to 0: it stays
    within a factor of `span` of its start. Sigma is counted as the least that it could have by the
    end of `stride` rounds, so that there are few kinds of events.
    """

    alpha: float = 1.0
    beta: float = 0.999
    patience: int = 3
    span: float = 10.0
    stride: int = 10
    follows = True

    def __post_init__(self) -> None:
        if not (
            self.alpha > 0
            and 0 < self.beta <= 1
            and self.patience >= 1
            and self.span >= 1
            and self.stride >= 1
        ):
            raise DpflError(
                "An adaptive clip needs alpha above 0, beta up to 1, and patience, span and stride "
                "of at least 1."
            )

    def for_rounds(self, rounds: int) -> AdaptiveSchedule:
        return self

    def least(self, first: Release, round: int) -> Release:
        assert first.noise is not None
        most = self.stride * math.ceil(max(0, round - self.patience) / self.stride)
        return first.with_noise(first.noise.noise_multiplier * self.beta**most)

    def now(self, first: Release, round: int, memory: Mapping[str, Tensor]) -> Release:
        """With the mean of the clients' levels and noises, for the record."""
        floor = self.least(first, round).noise_multiplier
        if "levels" not in memory:
            return (
                first
                if floor == first.noise_multiplier
                else replace(first, noise=FlooredGaussian(first.noise_multiplier, floor))
            )
        known = [self._own(client, memory) for client in range(len(memory["levels"]))]
        level, multiplier = (sum(values) / len(known) for values in zip(*known, strict=True))
        return replace(
            with_level(first, level), noise=FlooredGaussian(max(multiplier, floor), floor)
        )

    def own(self, release: Release, client: int, memory: Mapping[str, Tensor]) -> Release:
        if "levels" not in memory:
            return release
        level, multiplier = self._own(client, memory)
        return replace(
            with_level(release, level), noise=FlooredGaussian(multiplier, release.noise_multiplier)
        )

    def _own(self, client: int, memory: Mapping[str, Tensor]) -> tuple[float, float]:
        """C and sigma of a client."""
        level, multiplier = memory["start"].tolist()
        wanted = self.alpha * float(memory["levels"][client])
        bounded = (
            level if math.isnan(wanted) else min(max(wanted, level / self.span), level * self.span)
        )
        return bounded, multiplier * self.beta ** int(memory["falls"][client])

    def learn(
        self, seen: RoundObservation, validate: Validate, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        clients, facts = len(seen.facts.batches), seen.facts
        start = memory.get(
            "start", torch.tensor([facts.clip, facts.multiplier], dtype=torch.float64)
        )
        losses = memory.get(
            "losses", torch.full((clients, self.patience + 1), math.nan, dtype=torch.float64)
        ).clone()
        falls, levels = (
            memory.get("falls", torch.zeros(clients)).clone(),
            memory.get("levels", _unknown(clients)).clone(),
        )
        for client in seen.updates:
            used = (
                self._own(client, memory) if "levels" in memory else (facts.clip, facts.multiplier)
            )
            levels[client] = _norm(seen, client, *used)
            own = validate(seen.vector + seen.updates[client])
            losses[client] = torch.cat(
                [losses[client, 1:], torch.tensor([own], dtype=torch.float64)]
            )
            falls[client] += all(
                later < sooner for sooner, later in pairwise(losses[client].tolist())
            )
        return {"levels": levels, "losses": losses, "falls": falls, "start": start}


def _unknown(clients: int) -> Tensor:
    return torch.full((clients,), math.nan, dtype=torch.float64)


def _norm(seen: RoundObservation, client: int, level: float, multiplier: float) -> float:
    """Of the mean gradient that a client went along, without its noise."""
    noise = (multiplier * level / seen.facts.batches[client]) ** 2 * seen.facts.energy / seen.steps
    return math.sqrt(max(float(released_gradient(seen, client).square().sum()) - noise, 0.0))
