"""Measures how fast a client computes: the private step of a model, on random numbers.

No data is read.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from dpfl.client.dataset import ClientDataset
from dpfl.client.descent.local_training import private_steps
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.engines import one_thread
from dpfl.errors import DpflError
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.losses import plain_gradient
from dpfl.models import Buildable, FlatModel, feature_map
from dpfl.models.build import build_module
from dpfl.privacy import Flat, Gaussian, Poisson, Release

BATCH = 256
FEW = 8
"""Number of different samples, which a batch repeats; and the smallest batch."""
PLAIN = 64
"""Samples in a batch without a clip."""
LARGEST = 10**8
"""Largest number of values in a sample."""


@dataclass(frozen=True)
class ClientWork:
    """A model, and what is publicly known of its samples.

    Attributes:
        model: The model.
        shape: Shape of a sample, channels first.
        classes: Number of classes, at least 2.
    """

    model: Buildable
    shape: tuple[int, ...]
    classes: int

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1:
            raise DpflError(
                "A model needs the shape of a sample, channels first: give one such as 1,28,28, or "
                "known data."
            )
        if math.prod(self.shape) > LARGEST:
            raise DpflError(
                f"A sample of shape {self.shape} has more than {LARGEST:,} numbers; give the shape "
                "of one sample."
            )
        if self.classes < 2:
            raise DpflError(f"There must be at least 2 classes, not {self.classes}.")

    @property
    def name(self) -> str:
        """What was measured, for the assumptions of a plan."""
        return f"{self.model.name} on random numbers of shape {' x '.join(map(str, self.shape))}"

    @property
    def parameters(self) -> int:
        """Number of trained parameters."""
        return self._flat.layout.trainable

    def samples_per_second(self, seconds: float = 1.0) -> float:
        """Measures private steps: sampling, clipped gradients, noise and update, on one thread.

        One step sets up, and one more chooses the batch size; neither counts.

        Args:
            seconds: Time to measure for.

        Returns:
            Samples per second.
        """
        gradients, local = ClippedGradients(self._flat), LocalTraining(SGD(1e-3))
        release, rng = Release(Poisson(1.0), Flat(1.0), Gaussian(1.0)), np.random.default_rng(0)

        def time_of(batch: int) -> float:
            y, rows = torch.arange(FEW) % self.classes, torch.arange(batch) % FEW
            data = ClientDataset(self._x, y, rows, declared_size=batch)
            start = time.perf_counter()
            private_steps(gradients, data, 1, local, release, lambda purpose: rng)
            return time.perf_counter() - start

        with one_thread():
            time_of(FEW)
            batch = int(min(max(FEW, FEW * seconds / (4 * time_of(FEW))), BATCH))
            times = [time_of(batch)]
            while sum(times) < seconds:
                times.append(time_of(batch))
        return len(times) * batch / sum(times)

    def plain_samples_per_second(self, seconds: float = 1.0) -> float:
        """Measures mean gradients, without clip and noise.

        Args:
            seconds: Time to measure for.

        Returns:
            Samples per second.
        """
        x = self._x.repeat(PLAIN // FEW, *[1] * len(self.shape))
        y = torch.arange(PLAIN) % self.classes
        times = list[float]()
        with one_thread():
            while sum(times) < seconds or len(times) < 2:
                start = time.perf_counter()
                plain_gradient(self._flat, x, y)
                times.append(time.perf_counter() - start)
        return PLAIN / min(times)

    @cached_property
    def _x(self) -> torch.Tensor:
        features = feature_map(self.model, self.shape)
        shape = features(torch.zeros(0, *self.shape)).shape[1:] if features else self.shape
        return torch.randn(FEW, *shape, generator=torch.Generator().manual_seed(0))

    @cached_property
    def _flat(self) -> FlatModel:
        return FlatModel(build_module(self.model, tuple(self._x.shape[1:]), self.classes, seed=0))
