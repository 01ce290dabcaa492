"""Local training: private steps on Poisson batches, or plain steps on shuffled ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl.client.gradients import ClippedGradients, NonFinite, plain_gradient
from dpfl.client.task import Local
from dpfl.models import FlatModel
from dpfl.privacy import Release

Generator = Callable[[str, int], np.random.Generator]
"""Purpose and step to a generator of its own."""


@dataclass(frozen=True)
class Holdings:
    """A client's rows of a larger (shared) data set."""

    x: Tensor
    y: Tensor
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        chosen = self.rows[batch]
        return self.x[chosen], self.y[chosen]


def private_steps(
    gradients: ClippedGradients, data: Holdings, size: int, steps: int, local: Local, release: Release, generator: Generator
) -> None:
    """DP-SGD: sample, clip each gradient, sum, add noise, divide by q n with the declared n (an empty batch is noise)."""
    model = gradients.model
    step = local.optimiser.start()
    divisor = release.sampling.expected(size)
    for index in range(steps):
        batch = release.sampling.draw(len(data), generator("batch", index))
        total = gradients(*data.take(torch.from_numpy(batch)), release.clip.factors).total
        noisy = release.noised(total, generator("sample noise", index)) / divisor
        model.vector[: model.layout.trainable] += step(noisy)


def plain_steps(model: FlatModel, data: Holdings, steps: int, local: Local, generator: Generator) -> None:
    """SGD on shuffled batches (FedAvg's local update); a loss that is not a number ends it."""
    step = local.optimiser.start()
    batches = shuffled(len(data), local.batch_size, generator("batch", 0))
    for _ in range(steps):
        gradient, loss = plain_gradient(model, *data.take(next(batches)))
        if not math.isfinite(loss):
            raise NonFinite("Its loss is not finite; check the data for nan, or lower the learning rate.")
        model.vector[: model.layout.trainable] += step(gradient)


def shuffled(size: int, batch_size: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Batches without replacement, epoch after epoch; a last batch of one joins the batch before it."""
    cuts = list(range(batch_size, size, batch_size))
    if cuts and size - cuts[-1] == 1:
        cuts.pop()
    while True:
        yield from torch.from_numpy(rng.permutation(size)).tensor_split(cuts)
