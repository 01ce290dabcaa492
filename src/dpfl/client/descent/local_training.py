"""Local training: tau steps of a client, from the model that the server sent.

`private_steps` is DP-SGD. Each step draws a batch B and moves the client's model by

    x <- x - eta (sum_{i in B} clip(g_i, C) + N(0, (z C)^2 I)) / (q n),

with Poisson sampling at the rate q and the declared size n, so that the divisor is a constant. The
noise is added here, and nowhere else, where `NoisePlacement` is EVERY_STEP. `plain_steps` shuffles
the rows and adds no noise: then the whole update is clipped and made private afterwards, at the
client (`client/training.py`) or in the sum of the round (`server/aggregation/mean_update.py`), or
the run has no guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from dpfl.client.dataset import ClientDataset
from dpfl.client.descent.drift import Drift
from dpfl.client.descent.objectives import Generator
from dpfl.client.descent.plain_descent import descent
from dpfl.client.task import LocalTraining
from dpfl.gradients.clip_factors import NonFinite
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.sum_rounding import check_units
from dpfl.gradients.unit_gradients import sum_rows
from dpfl.models import FlatModel
from dpfl.privacy import Release
from dpfl.privacy.mechanisms.clips.clip import Clip

Watch = Callable[[np.ndarray], None]
"""A function that is called with each batch, before its step."""


def private_steps(
    gradients: ClippedGradients,
    data: ClientDataset,
    steps: int,
    local: LocalTraining,
    release: Release,
    generator: Generator,
    drift: Drift | None = None,
    watch: Watch | None = None,
) -> None:
    """Takes steps of DP-SGD (Abadi et al. 2016, algorithm 1) on the flat model, in place.

        S ~ Poisson(q)                                            sample units
        g = (sum_{i in S} clip(g_i) + N(0, (z C)^2 I)) / (q n)    clip, sum, add noise, divide
        x <- x - eta g                                            or the optimiser's step

    A unit is a sample, or a person with the mean over their rows. n is the declared size, so an
    empty batch is noise alone, and nobody's presence changes the divisor.

    Args:
        gradients: The model's clipped gradients.
        data: The client's data, with its declared size.
        steps: How many steps to take.
        local: The optimiser.
        release: Sampling, clip and noise of a step.
        generator: Random generators of the released value, by purpose.
        drift: What is added to every gradient, if anything.
        watch: Called with each batch before its step.
    """
    model = gradients.model
    step = local.optimiser.start()
    divisor = release.divisor_for(data.declared_size)
    draws, noise = generator("batch"), generator("sample noise")
    for _ in range(steps):
        batch = release.sampling.draw(len(data), draws)
        if release.divide_by_drawn and not len(batch):
            continue
        total = clipped_sum(gradients, release.clip, *data.units(torch.from_numpy(batch)))
        noisy = release.add_noise(total, noise).div_(
            len(batch) if release.divide_by_drawn else divisor
        )
        if watch:
            watch(batch)
        here = model.vector[: model.layout.trainable]
        here += step(drift.add_to(noisy, here) if drift else noisy)


def clipped_batch(
    gradients: ClippedGradients, data: ClientDataset, release: Release, generator: Generator
) -> Tensor:
    """Draws one batch and sums its clipped gradients, for a caller that adds the noise elsewhere.

    Args:
        gradients: The model's clipped gradients.
        data: The client's data.
        release: Sampling and clip.
        generator: Random generators of the released value, by purpose.

    Returns:
        The sum in float64, without noise.
    """
    batch = release.sampling.draw(len(data), generator("batch"))
    return clipped_sum(gradients, release.clip, *data.units(torch.from_numpy(batch)))


def clipped_sum(
    gradients: ClippedGradients, clip: Clip, x: Tensor, y: Tensor, whose: Tensor | None = None
) -> Tensor:
    """Sums the clipped gradients of a batch.

    A clip with a measure of its own needs the gradients written out; for others the norms of the
    layers are enough.

    Args:
        gradients: The model's clipped gradients.
        clip: The clip.
        x: Samples.
        y: Labels.
        whose: For each row its unit, where units are persons.

    Returns:
        The sum in float64, without noise.
    """
    if not clip.own_measure:
        return gradients(x, y, clip.factors, whose).total
    total = torch.zeros(gradients.model.layout.trainable, dtype=torch.float64)
    blocks = gradients.rows(x, y) if whose is None else gradients.unit_rows(x, y, whose)
    units = 0
    for _, rows in blocks:
        total += (
            clip.clip_rows(rows).double().sum(0)
            if clip.reshapes
            else sum_rows(clip.factors(clip.norms(rows)), rows)
        )
        units += len(rows)
    check_units(units, additions=0)
    return total


def gradient_norms(gradients: ClippedGradients, clip: Clip, x: Tensor, y: Tensor) -> Tensor:
    """Measures the gradient of every sample as the clip does.

    Args:
        gradients: The model's gradients.
        clip: The clip.
        x: Samples.
        y: Labels.

    Returns:
        A norm per sample.
    """
    norms = [
        clip.norms(rows) if clip.own_measure else rows.norm(dim=1)
        for _, rows in gradients.rows(x, y)
    ]
    return torch.cat([torch.zeros(0), *norms])


def plain_steps(
    model: FlatModel,
    data: ClientDataset,
    steps: int,
    local: LocalTraining,
    generator: Generator,
    drift: Drift | None = None,
    last: Tensor | None = None,
) -> None:
    """Takes steps of SGD on shuffled batches (FedAvg's local update), in place.

    Args:
        model: The model.
        data: The client's data; without rows nothing happens.
        steps: How many steps to take.
        local: Optimiser, batch size and objective.
        generator: Random generators of the released value, by purpose.
        drift: What is added to every gradient, if anything.
        last: The client's model of its last round, for an objective that needs it.

    Raises:
        NonFinite: The loss is not a number any more.
    """
    if not len(data):
        return
    batches = islice(shuffle(len(data), local.batch_size, generator("batch")), steps)
    loss_of = local.objective.start(model, last, generator)
    for loss in descent(model, data, local, steps, drift, loss_of)(batches):
        if not math.isfinite(loss):
            raise NonFinite(
                "Its loss is not finite; check the data for nan, or lower the learning rate."
            )


def shuffle(size: int, batch_size: int, rng: np.random.Generator) -> Iterator[Tensor]:
    """Deals rows in batches without replacement, epoch after epoch.

    Args:
        size: How many rows there are.
        batch_size: How many rows a batch has; a last batch of one joins the batch before it.
        rng: Draws the order of each epoch.

    Returns:
        Batches without end.
    """
    cuts = list(range(batch_size, size, batch_size))
    if cuts and size - cuts[-1] == 1:
        cuts.pop()
    while True:
        yield from torch.from_numpy(rng.permutation(size)).tensor_split(cuts)
