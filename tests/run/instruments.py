"""What a run really did: every draw, every sum that was clipped, every number of noise, in the
order in which they came.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from dpfl.client import training
from dpfl.client.descent import local_training
from dpfl.client.runner import ClientRunner
from dpfl.privacy.mechanisms import sampling
from dpfl.privacy.mechanisms.noises import noise
from dpfl.privacy.queries import histogram
from dpfl.run.stages.dry_run import DRY_RUN

DRAWS = (sampling.Poisson, sampling.FixedSize, sampling.All, sampling.Cyclic)


@dataclass
class Log:
    """Entries of (what, value), with ("client", number) where a client begins to work and
    ("server", round) after it.
    """

    entries: list[tuple[str, Any]] = field(default_factory=list)
    paused: bool = False

    def add(self, what: str, value: Any) -> None:
        if not self.paused:
            self.entries.append((what, value))

    def of_client(self, client: int) -> list[tuple[str, Any]]:
        found, now = [], None
        for what, value in self.entries:
            if what == "client":
                now = value
            elif now == client:
                found.append((what, value))
        return found

    def values(self, what: str) -> list[Any]:
        return [value for kind, value in self.entries if kind == what]


class Pointing:
    """A generator whose normal numbers are 1, 0, 0, ...: what is added shows the deviation."""

    def standard_normal(self, shape: Any = ()) -> np.ndarray:
        found = np.zeros(shape)
        found.reshape(-1)[0] = 1.0
        return found


@contextmanager
def instrumented() -> Iterator[Log]:
    log = Log()
    with pytest.MonkeyPatch.context() as patch:
        _watch_draws(patch, log)
        _watch_noise(patch, log)
        _watch_sums(patch, log)
        _watch_histograms(patch, log)
        _watch_uploads(patch, log)
        work = ClientRunner.work

        def watched(self: ClientRunner, task: Any, *rest: Any, **options: Any) -> Any:
            log.paused = self.context.run == DRY_RUN  # on samples of zeros, which nobody owns
            log.add("client", task.client)
            try:
                return work(self, task, *rest, **options)
            finally:
                log.add("client", None)
                log.paused = False

        patch.setattr(ClientRunner, "work", watched)
        yield log


def _watch_draws(patch: pytest.MonkeyPatch, log: Log) -> None:
    for kind in DRAWS:
        drawn = kind.draw

        def draw(
            self: Any, population: int, *rest: Any, drawn: Any = drawn, **options: Any
        ) -> np.ndarray:
            found = drawn(self, population, *rest, **options)
            log.add("draw", (self, population, len(found)))
            return found

        patch.setattr(kind, "draw", draw)


def _watch_noise(patch: pytest.MonkeyPatch, log: Log) -> None:
    """gaussian_vector under every name that it was imported by."""
    made = noise.gaussian_vector

    def vector(size: int, deviation: float, rng: np.random.Generator) -> torch.Tensor:
        log.add("noise", deviation)
        return made(size, deviation, rng)

    for name, module in list(sys.modules.items()):
        if name.startswith("dpfl.") and getattr(module, "gaussian_vector", None) is made:
            patch.setattr(module, "gaussian_vector", vector)


def _watch_sums(patch: pytest.MonkeyPatch, log: Log) -> None:
    """How far the clipped sum of a batch moves, at most, when one of its samples is taken away."""
    summed = local_training.clipped_sum

    def clipped_sum(
        gradients: Any, clip: Any, x: torch.Tensor, y: torch.Tensor, group: None
    ) -> torch.Tensor:
        total = summed(gradients, clip, x, y, group).clone()
        others = [torch.arange(len(x)) != one for one in range(min(len(x), 3))]
        moved = [total - summed(gradients, clip, x[rest], y[rest]) for rest in others]
        log.add("sum", (clip, moved))
        return total

    patch.setattr(local_training, "clipped_sum", clipped_sum)


def _watch_histograms(patch: pytest.MonkeyPatch, log: Log) -> None:
    """The deviation from what comes out: shares of counts of which one only has noise, and that
    noise is its deviation.
    """
    made = histogram.private_histogram

    def private_histogram(
        counts: Any, multiplier: float, rng: np.random.Generator, *rest: Any, **options: Any
    ) -> np.ndarray:
        exact, shares = (
            np.asarray(counts, float),
            made(counts, multiplier, Pointing(), *rest, **options),
        )  # type: ignore[arg-type]
        another = int(np.argmax(exact[1:])) + 1
        log.add("histogram", exact[another] / shares[another] - exact.sum())
        return made(counts, multiplier, rng, *rest, **options)

    patch.setattr(histogram, "private_histogram", private_histogram)


def _watch_uploads(patch: pytest.MonkeyPatch, log: Log) -> None:
    """The clip of an update or of a model, and the norm that it leaves."""
    clipped = training.clip_vector

    def clip_vector(
        vector: torch.Tensor, clip: Any, *rest: Any, **options: Any
    ) -> tuple[torch.Tensor, bool]:
        found, inside = clipped(vector, clip, *rest, **options)
        log.add("clip", clip)
        log.add("upload", float(found.double().norm()))
        return found, inside

    patch.setattr(training, "clip_vector", clip_vector)
