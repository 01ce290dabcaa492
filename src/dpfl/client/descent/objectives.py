"""Objectives: the loss that a client's plain steps lower. It is cross-entropy alone, or with a term
on the input or the weights of the last linear layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.gradients.losses import Loss, mean_loss, sample_losses
from dpfl.lazy_import import functional, nn
from dpfl.models import FlatModel
from dpfl.models.flat import evaluating
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector

if TYPE_CHECKING:
    from torch import Tensor

Generator = Callable[[str], np.random.Generator]
"""Maps a purpose to a generator of its own. The steps of a round draw from it in turn."""


class Objective(Protocol):
    """The loss that plain steps lower."""

    @property
    def task_loss_alone(self) -> bool:
        """Whether it is the mean loss of the task and nothing else."""

    @property
    def needs_last(self) -> bool:
        """Whether clients must be told where they ended their last round."""

    def start(self, model: FlatModel, last: Tensor | None, generator: Generator) -> Loss:
        """Starts a round.

        Args:
            model: The model, with the global weights.
            last: The client's own weights of its last round, where it has some.
            generator: Random generators of the released value, by purpose.

        Returns:
            The loss of a batch.
        """


@part("objective.cross-entropy")
@dataclass(frozen=True)
class CrossEntropy:
    """The mean loss of the task alone."""

    task_loss_alone = True
    needs_last = False

    def start(self, model: FlatModel, last: Tensor | None, generator: Generator) -> Loss:
        """Starts a round.

        Args:
            model: Not used.
            last: Not used.
            generator: Not used.

        Returns:
            The mean loss of the task, which `descent` knows how to lower quickly.
        """
        return mean_loss


@part("objective.contrastive")
@dataclass(frozen=True)
class Contrastive:
    """Cross-entropy + mu l_con, which draws representations to the global model's and away from the
    client's last ones.

    The representation z of a sample is what the last linear layer reads (Li, He and Song 2021, eq.
    3, without a projection).
    """

    mu: float = 1.0
    temperature: float = 0.5
    task_loss_alone = False
    needs_last = True

    def __post_init__(self) -> None:
        if not 0 <= self.mu < math.inf:
            raise DpflError(
                "The weight of the contrastive term (mu) must be a number of at least 0, not "
                f"{self.mu}."
            )
        if not 0 < self.temperature < math.inf:
            raise DpflError(
                "The temperature of the contrastive term must be a positive number, not "
                f"{self.temperature}."
            )

    def start(self, model: FlatModel, last: Tensor | None, generator: Generator) -> Loss:
        """Starts a round.

        Args:
            model: The model, with the global weights.
            last: The client's own weights of its last round. In its first round there are none,
                and the global weights take their place.
            generator: Not used.

        Returns:
            The loss of a batch: the task's plus mu times the contrastive loss.
        """
        start = model.read()
        before = start if last is None else last

        def loss(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
            near, far = (_representations_at(vector, model, x) for vector in (start, before))
            last_layer = final_layer(model, x)
            contrast = contrastive_losses(last_layer.inputs.flatten(1), near, far, self.temperature)
            return (
                sample_losses(last_layer.scores, y, model.task).mean() + self.mu * contrast.mean()
            )

        return loss


@part("objective.perturbed", stddev="deviation")
@dataclass(frozen=True)
class PerturbedScores:
    """The loss of the task, plus `share` times its value after noise from N(0, deviation^2) was
    added to the last linear layer.
    """

    share: float = 1.0
    deviation: float = 0.1
    task_loss_alone = False
    needs_last = False

    def __post_init__(self) -> None:
        if not 0 <= self.share < math.inf:
            raise DpflError(
                f"The share of the perturbed loss must be a number of at least 0, not {self.share}."
            )
        if not 0 <= self.deviation < math.inf:
            raise DpflError(
                "The deviation of the perturbation must be a number of at least 0, not "
                f"{self.deviation}."
            )

    def start(self, model: FlatModel, last: Tensor | None, generator: Generator) -> Loss:
        """Starts a round.

        Args:
            model: Not used.
            last: Not used.
            generator: Gives the generator of the perturbation, which draws anew for each batch.

        Returns:
            The loss of a batch: the task's plus `share` times that of the perturbed scores.
        """
        rng = generator("perturbation")

        def perturb(parameter: Tensor) -> Tensor:
            return parameter + gaussian_vector(parameter.numel(), self.deviation, rng).view(
                parameter.shape
            )

        def loss(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
            last_layer = final_layer(model, x)
            weight, bias = last_layer.layer.weight, last_layer.layer.bias
            scores = functional.linear(
                last_layer.inputs, perturb(weight), None if bias is None else perturb(bias)
            )
            both = (
                sample_losses(each, y, model.task).mean() for each in (last_layer.scores, scores)
            )
            return next(both) + self.share * next(both)

        return loss


def contrastive_losses(z: Tensor, near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """Computes -log(e^(s_near / T) / (e^(s_near / T) + e^(s_far / T))) of each row.

    Args:
        z: Representations under the model that is trained.
        near: Representations under the global model.
        far: Representations under the client's last model.
        temperature: T.

    Returns:
        A loss per row; s is the cosine similarity to `z`.
    """
    return functional.softplus(
        (functional.cosine_similarity(z, far) - functional.cosine_similarity(z, near)) / temperature
    )


@dataclass(frozen=True)
class FinalLayer:
    """The linear layer that made the scores of a batch, and what it read."""

    layer: nn.Linear
    inputs: Tensor
    scores: Tensor


def final_layer(model: FlatModel, x: Tensor) -> FinalLayer:
    """Finds the linear layer that made the scores of a batch, in one forward pass.

    Args:
        model: The model; it carries hooks only during the pass.
        x: The batch.

    Returns:
        The layer, what it read and its scores.

    Raises:
        DpflError: The scores do not come straight from a linear layer.
    """
    passes: list[FinalLayer] = []

    def hook(layer: nn.Linear, inputs: tuple[Tensor, ...], scores: Tensor) -> None:
        passes[:] = [FinalLayer(layer, inputs[0], scores)]

    handles = [
        layer.register_forward_hook(hook)
        for layer in model.module.modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        scores = model.module(model.arrange(x))
    finally:
        for handle in handles:
            handle.remove()
    if not passes or passes[0].scores is not scores:
        raise DpflError(
            "This objective takes a model whose scores come straight from a linear layer; end it "
            "with nn.Linear."
        )
    return passes[0]


def _representations_at(vector: Tensor, model: FlatModel, x: Tensor) -> Tensor:
    """Computes the representations under another weight vector."""
    here = model.read()
    model.load(vector)
    try:
        with evaluating(model.module):
            return final_layer(model, x).inputs.flatten(1)
    finally:
        model.load(here)
