"""Releases that change from round to round: by a plan made before training, or by what was released before."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from dpfl.errors import DpflError
from dpfl.lazy import torch
from dpfl.privacy import Flat, Release
from dpfl.privacy.noise import AtLeast
from dpfl.privacy.schedules import Dynamic
from dpfl.server.released import noise_energy, released_gradient
from dpfl.server.steps import Seen

if TYPE_CHECKING:
    from torch import Tensor


class Schedule(Protocol):
    @property
    def follows(self) -> bool:
        """Whether it looks at the clients' noisy gradients."""

    def over(self, rounds: int) -> Schedule:
        """For a run of this many rounds."""

    def least(self, first: Release, round: int) -> Release:
        """With the least noise that this round can have, whatever comes before it, which is what is accounted for."""

    def now(self, first: Release, round: int, memory: Mapping[str, Tensor]) -> Release:
        """The release of this round; `first` is that of the first."""

    def learn(self, seen: Seen, validate: Callable[[], float], memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What to remember after a round; `validate` is the loss of the new model on public data."""


def counted_alike(release: Release, other: Release) -> bool:
    """Whether both are the same event, for any population."""
    same = release.sampling == other.sampling and release.realised == other.realised
    return same and release.multiplier == other.multiplier


def with_level(release: Release, level: float) -> Release:
    return replace(release, clip=Flat(level))


@dataclass(frozen=True)
class Decay:
    """Dynamic DP-SGD (Du et al. 2021): C falls to `clip` times its start, and sigma to `noise` times, over the run.

    The level moves every round and costs nothing; the noise moves in `phases`, so that there are few kinds of events.
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

    def _plan(self, level: float, multiplier: float, every: int) -> Dynamic:
        return Dynamic(self.rounds, 1 / multiplier, level, self.clip, self.noise, every)

    def over(self, rounds: int) -> Decay:
        return replace(self, rounds=rounds)

    def least(self, first: Release, round: int) -> Release:
        assert first.noise is not None
        start = first.clip.level, first.noise.multiplier
        noise = self._plan(*start, math.ceil(self.rounds / self.phases)).multiplier_at(round)
        return with_level(first, self._plan(*start, 1).clip_at(round)).with_noise(noise)

    def now(self, first: Release, round: int, memory: Mapping[str, Tensor]) -> Release:
        return self.least(first, round)

    def learn(self, seen: Seen, validate: Callable[[], float], memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {}


@dataclass(frozen=True)
class Following:
    """Adap DP-FL (Fu et al. 2022): C is `alpha` times the mean norm of the last noisy gradients, the energy of their noise
    removed; sigma falls by `beta` for each round after which a public loss has fallen `patience` times running.

    The mean of clipped gradients is shorter than the clip, so C would follow itself to 0: it stays within a factor of `span`
    of its start. Sigma moves after every `stride` such rounds at once, so that there are few kinds of events.
    """

    alpha: float = 1.0
    beta: float = 0.999
    patience: int = 3
    span: float = 10.0
    stride: int = 10
    follows = True

    def __post_init__(self) -> None:
        if not (self.alpha > 0 and 0 < self.beta <= 1 and self.patience >= 1 and self.span >= 1 and self.stride >= 1):
            raise DpflError("An adaptive clip needs alpha above 0, beta up to 1, and patience, span and stride of at least 1.")

    def over(self, rounds: int) -> Following:
        return self

    def least(self, first: Release, round: int) -> Release:
        return first.with_noise(self._multiplier(first, max(0, round - self.patience)))

    def _multiplier(self, first: Release, falls: int) -> float:
        assert first.noise is not None
        return first.noise.multiplier * self.beta ** (falls - falls % self.stride)

    def now(self, first: Release, round: int, memory: Mapping[str, Tensor]) -> Release:
        start, floor = first.clip.level, self.least(first, round).multiplier
        if "level" not in memory:
            return first if floor == first.multiplier else replace(first, noise=AtLeast(first.multiplier, floor))
        level = min(max(self.alpha * float(memory["level"]), start / self.span), start * self.span)
        return replace(with_level(first, level), noise=AtLeast(self._multiplier(first, int(memory["falls"])), floor))

    def learn(self, seen: Seen, validate: Callable[[], float], memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        norms = [_norm(seen, client) for client in seen.updates]
        losses = [*memory.get("losses", torch.empty(0)).tolist(), validate()][-self.patience - 1 :]
        falling = len(losses) > self.patience and all(later < sooner for sooner, later in pairwise(losses))
        return {
            "level": torch.tensor(sum(norms) / len(norms), dtype=torch.float64),
            "losses": torch.tensor(losses, dtype=torch.float64),
            "falls": memory.get("falls", torch.tensor(0)) + int(falling),
        }


def _norm(seen: Seen, client: int) -> float:
    """Of the mean gradient that a client went along, without its noise."""
    square = float(released_gradient(seen, client).square().sum()) - noise_energy(seen, client)
    return math.sqrt(max(square, 0.0))
