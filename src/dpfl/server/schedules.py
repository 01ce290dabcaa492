"""Schedules: releases that change from round to round, by a plan made before training or by what
was released before.
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
from dpfl.privacy.mechanisms.noises.noise import FlooredGaussian
from dpfl.privacy.mechanisms.schedules import DynamicPlan
from dpfl.server.released_estimates import released_gradient
from dpfl.server.steps.policy import RoundObservation

if TYPE_CHECKING:
    from torch import Tensor


class Schedule(Protocol):
    """Sets the private release of each round, by a plan or by what was released."""

    @property
    def follows(self) -> bool:
        """Whether it looks at the clients' noisy gradients."""

    def for_rounds(self, rounds: int) -> Schedule:
        """Fits the schedule to a run.

        Args:
            rounds: How many rounds the run has.

        Returns:
            The schedule of that run.
        """

    def least(self, first: Release, round: int) -> Release:
        """Returns the release with the least noise that a round can have, whatever happens before
        it. The round is accounted for as this release.

        Args:
            first: The release of the first round.
            round: How many rounds come before this one.

        Returns:
            The release that is counted.
        """

    def now(self, first: Release, round: int, memory: Mapping[str, Tensor]) -> Release:
        """Returns the release of a round.

        Args:
            first: The release of the first round.
            round: How many rounds came before this one.
            memory: What the schedule remembers.

        Returns:
            The release of the round. `for_client` gives each client its own version of it.
        """

    def for_client(self, release: Release, client: int, memory: Mapping[str, Tensor]) -> Release:
        """Returns the version of a round's release that one client uses.

        Args:
            release: The release of the round.
            client: The client's number.
            memory: What the schedule remembers.

        Returns:
            The client's release, which costs the same.
        """

    def learn(
        self, observation: RoundObservation, validate: Validate, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Learns from a round.

        Args:
            observation: The round as the server saw it.
            validate: Computes the loss of a model on public data.
            memory: What the schedule remembered before.

        Returns:
            What to remember from now on.
        """


Validate = Callable[["Tensor"], float]
"""Computes the loss of a model on public data."""


def followed_release(
    schedule: Schedule, first: Release, round: int, memory: Mapping[str, Tensor]
) -> Release:
    """Returns the release of a round.

    Args:
        schedule: The schedule.
        first: The release of the first round.
        round: How many rounds came before this one.
        memory: What the schedule remembers.

    Returns:
        The release.

    Raises:
        DpflError: It would not be counted as `Schedule.least` says.
    """
    return _check_cost(schedule, schedule.now(first, round, memory), schedule.least(first, round))


def release_of_client(
    schedule: Schedule | None, release: Release | None, client: int, memory: Mapping[str, Tensor]
) -> Release | None:
    """Returns the version of a round's release that one client uses, and checks its cost.

    Args:
        schedule: The schedule; None where releases do not change.
        release: The release of the round; None where steps are not private.
        client: The client's number.
        memory: What the schedule remembers.

    Returns:
        The client's release.

    Raises:
        DpflError: It would not be counted as the release of the round is.
    """
    if schedule is None or release is None:
        return release
    return _check_cost(schedule, schedule.for_client(release, client, memory), release)


def _check_cost(schedule: Schedule, release: Release, expected_release: Release) -> Release:
    """Returns the release, and refuses it where its event is not that of the expected one."""
    same = (
        release.sampling == expected_release.sampling
        and release.divide_by_drawn == expected_release.divide_by_drawn
        and release.noise_multiplier == expected_release.noise_multiplier
    )
    if not same:
        raise DpflError(
            f"{type(schedule).__name__} must charge each round what it announced: wrap its noise "
            "in FlooredGaussian."
        )
    return release


def with_clip_norm(release: Release, clip_norm: float) -> Release:
    """Puts a flat clip into a release.

    Args:
        release: The release.
        clip_norm: The clip norm.

    Returns:
        The release with that clip.
    """
    return replace(release, clip=Flat(clip_norm))


@part("schedule.decay")
@dataclass(frozen=True)
class DecaySchedule(Schedule):
    """Dynamic DP-SGD (Du et al. 2021): clip norm C and noise multiplier sigma fall over the run.

    C changes every round, which costs nothing. Sigma changes in phases, so that there are few kinds
    of events.

    Attributes:
        clip: What C falls to, over its start; above 0 and at most 1.
        noise: What sigma falls to, over its start; above 0 and at most 1.
        phases: How many values sigma has.
        rounds: How many rounds the run has.
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
        return with_clip_norm(first, self._plan(*start, 1).clip_at(round)).with_noise(noise)

    def now(self, first: Release, round: int, memory: Mapping[str, Tensor]) -> Release:
        return self.least(first, round)

    def for_client(self, release: Release, client: int, memory: Mapping[str, Tensor]) -> Release:
        return release

    def learn(
        self, observation: RoundObservation, validate: Validate, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return {}


@part("schedule.following")
@dataclass(frozen=True)
class AdaptiveSchedule(Schedule):
    """Adap DP-FL (Fu et al. 2022): clip norm C and noise multiplier sigma follow what clients
    released.

    A client's C is `alpha` times the norm of its own last noisy gradients, with the energy of their
    noise removed. Its sigma is multiplied by `beta` after each round in which the public loss of
    its own model has fallen `patience` times in a row.

    The mean of clipped gradients is shorter than the clip, so C would follow itself to 0. It
    therefore stays within a factor of `span` of its start. Sigma is counted as the least that it
    could be by the end of `stride` rounds, so that there are few kinds of events.

    Attributes:
        alpha: C over the norm of the gradients, above 0.
        beta: The factor of sigma, above 0 and at most 1.
        patience: How many times in a row the loss must have fallen.
        span: How far C may go from its start, as a factor of at least 1.
        stride: How many rounds are counted alike.
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
        """Returns the release of a round, with the mean of the clients' clip norms and noises for
        the record.

        Args:
            first: The release of the first round.
            round: How many rounds came before this one.
            memory: What the schedule remembers.

        Returns:
            The release, whose noise is counted as the least that the round could have.
        """
        floor = self.least(first, round).noise_multiplier
        if "levels" not in memory:
            return (
                first
                if floor == first.noise_multiplier
                else replace(first, noise=FlooredGaussian(first.noise_multiplier, floor))
            )
        of_clients = [
            self._clip_and_noise(client, memory) for client in range(len(memory["levels"]))
        ]
        level, multiplier = (
            sum(values) / len(of_clients) for values in zip(*of_clients, strict=True)
        )
        return replace(
            with_clip_norm(first, level), noise=FlooredGaussian(max(multiplier, floor), floor)
        )

    def for_client(self, release: Release, client: int, memory: Mapping[str, Tensor]) -> Release:
        if "levels" not in memory:
            return release
        level, multiplier = self._clip_and_noise(client, memory)
        return replace(
            with_clip_norm(release, level),
            noise=FlooredGaussian(multiplier, release.noise_multiplier),
        )

    def _clip_and_noise(self, client: int, memory: Mapping[str, Tensor]) -> tuple[float, float]:
        """Returns C and sigma of a client."""
        level, multiplier = memory["start"].tolist()
        target = self.alpha * float(memory["levels"][client])
        clip_norm = (
            level if math.isnan(target) else min(max(target, level / self.span), level * self.span)
        )
        return clip_norm, multiplier * self.beta ** int(memory["falls"][client])

    def learn(
        self, observation: RoundObservation, validate: Validate, memory: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        step_facts = observation.step_facts
        clients = len(step_facts.batches)
        start = memory.get(
            "start", torch.tensor([step_facts.clip, step_facts.multiplier], dtype=torch.float64)
        )
        losses = memory.get(
            "losses", torch.full((clients, self.patience + 1), math.nan, dtype=torch.float64)
        ).clone()
        falls = memory.get("falls", torch.zeros(clients)).clone()
        levels = memory.get("levels", _unknown(clients)).clone()
        for client in observation.updates:
            current = (
                self._clip_and_noise(client, memory)
                if "levels" in memory
                else (step_facts.clip, step_facts.multiplier)
            )
            levels[client] = _norm(observation, client, *current)
            loss = validate(observation.vector + observation.updates[client])
            losses[client] = torch.cat(
                [losses[client, 1:], torch.tensor([loss], dtype=torch.float64)]
            )
            falls[client] += all(
                later < sooner for sooner, later in pairwise(losses[client].tolist())
            )
        return {"levels": levels, "losses": losses, "falls": falls, "start": start}


def _unknown(clients: int) -> Tensor:
    return torch.full((clients,), math.nan, dtype=torch.float64)


def _norm(observation: RoundObservation, client: int, level: float, multiplier: float) -> float:
    """Estimates the norm of a client's mean gradient without its noise."""
    step_facts = observation.step_facts
    noise = (
        (multiplier * level / step_facts.divisors[client]) ** 2
        * step_facts.energy
        / observation.steps
    )
    square = float(released_gradient(observation, client).square().sum())
    return math.sqrt(max(square - noise, 0.0))
