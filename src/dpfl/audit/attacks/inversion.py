"""Gradient inversion: the image that a curious server rebuilds from one client's update.

In a layer W x + b every row of the gradient of W is x times an entry of the gradient of b. So an
update from one sample shows the sample exactly. (Zhu et al. 2019 search for it; here it can be read
off.) Large enough noise hides it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl import data, models
from dpfl.algorithms import Algorithm
from dpfl.audit.leaks import with_everyone
from dpfl.audit.test_bed import TestBed, play
from dpfl.privacy import Keyed
from dpfl.server.steps.policy import FixedSteps

MODEL = models.mlp(hidden=64)


@dataclass(frozen=True)
class Reconstruction:
    """An image, and what was rebuilt from updates.

    Attributes:
        image: The image.
        from_update: Rebuilt from the update without the release.
        from_release: Rebuilt from the update as it is released.
    """

    image: Tensor
    from_update: Tensor
    from_release: Tensor

    @property
    def likeness(self) -> tuple[float, float]:
        """Correlation of each rebuilt image with the image."""
        return _correlation(self.image, self.from_update), _correlation(
            self.image, self.from_release
        )

    @property
    def text(self) -> str:
        """The correlations in words."""
        without, with_release = self.likeness
        return (
            f"correlation with the image {without:.3f} without the release, {with_release:.3f} "
            "with it"
        )


Draw = Callable[[Reconstruction, str], str]
"""Draws a picture of what was rebuilt, for the system of this name, and says where the picture is.
"""


def invert(algorithm: Algorithm, seed: int = 0, image: int = 3) -> Reconstruction:
    """Rebuilds an image from the update of one client in one round.

    The client has one image, and blank ones where a batch has to be filled.

    Args:
        algorithm: The system.
        seed: The seed.
        image: Number of the embedded image.

    Returns:
        The image and what was rebuilt.
    """
    source = data.sample().train
    x = torch.stack([source.x[image], torch.zeros_like(source.x[image])])
    y = source.y[[image, image]]
    batch_size = _batch(algorithm)
    rows = torch.tensor([0] + [1] * (batch_size - 1))
    blank = (torch.full((batch_size,), 1),) * (
        algorithm.noise_shares.survivors - 1 if algorithm.noise_shares else 0
    )  # others in a secure sum
    clients = (rows, *blank)
    test_bed = TestBed(
        MODEL, x, y, source.classes, clients, (batch_size,) * len(clients), (torch.tensor([0]),)
    )
    sampled_algorithm = algorithm if batch_size > 1 else with_everyone(algorithm)
    pictures = [
        _rebuilt(test_bed, _step_of(variant, test_bed, seed))
        for variant in (_bare(algorithm), sampled_algorithm)
    ]
    return Reconstruction(
        x[0].squeeze(), *(picture.reshape(x[0].shape).squeeze() for picture in pictures)
    )


def _batch(algorithm: Algorithm) -> int:
    """Returns the fixed batch size, or 1."""
    if algorithm.samples is None or not algorithm.samples.sampling.constant_size:
        return 1
    return algorithm.samples.sampling.nominal_size or 1


def _bare(algorithm: Algorithm) -> Algorithm:
    """Returns the task with one plain, unclipped step."""
    return Algorithm(algorithm.name, algorithm.local, FixedSteps(1))


def _step_of(algorithm: Algorithm, test_bed: TestBed, seed: int) -> Tensor:
    """Computes the step of the model in one round, which is the client's update."""
    observed_round = play(algorithm, test_bed, Keyed(seed), rounds=1)[0]
    return observed_round.state.vector - test_bed.flat().read()


def _rebuilt(test_bed: TestBed, update: Tensor) -> Tensor:
    """Rebuilds a sample: the mean of the rows of the first layer's update, each over its entry of
    the bias, with the squared entries as weights.
    """
    flat = test_bed.flat()
    weight, bias = (update[flat.layout.span(entry)] for entry in (0, 1))
    rows = weight.reshape(len(bias), -1)
    return bias @ rows / bias.square().sum().clamp_min(1e-30)


def _correlation(one: Tensor, other: Tensor) -> float:
    return float(np.corrcoef(one.flatten().numpy(), other.flatten().numpy())[0, 1])
