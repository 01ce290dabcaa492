"""The loss that is trained: one number for each sample, by the task of the model.

A model without a task is trained by cross-entropy, -log softmax(s)_y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from dpfl.errors import DpflError
from dpfl.lazy_import import functional, torch
from dpfl.models import FlatModel

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.tasks import Task

Loss: TypeAlias = "Callable[[FlatModel, Tensor, Tensor], Tensor]"
"""Maps a model, samples and labels to the mean loss of the batch, with its graph."""


def checked_scores(scores: object, samples: int) -> Tensor:
    """Checks that what a model returned is scores.

    Args:
        scores: What the model returned for a batch.
        samples: The number of samples in the batch.

    Returns:
        The same, as a tensor.

    Raises:
        DpflError: It is no tensor with one row for each sample.
    """
    if not isinstance(scores, torch.Tensor) or scores.shape[:1] != (samples,):
        raise DpflError(
            "The model must return one tensor of scores (samples, classes), a row for each sample "
            "of the batch."
        )
    return scores


def sample_losses(scores: Tensor, y: Tensor, task: Task | None = None) -> Tensor:
    """Computes the loss of each sample.

    Args:
        scores: The scores of the samples.
        y: Their labels.
        task: The task. Without one, the loss is cross-entropy; where a sample has several
            positions, it is the mean over them.

    Returns:
        The losses (B,), with their graph.
    """
    checked_scores(scores, len(y))
    if task is not None:
        return task.losses(scores, y)
    losses = functional.cross_entropy(scores, y, reduction="none")
    return losses if losses.dim() == 1 else losses.flatten(1).mean(1)


def mean_loss(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
    """Computes the mean loss of a batch, by the model's task.

    Args:
        model: The model.
        x: The samples.
        y: Their labels.

    Returns:
        The mean, with its graph.
    """
    return sample_losses(model.module(model.arrange(x)), y, model.task).mean()


def losses_and_slopes(scores: Tensor, y: Tensor, task: Task | None = None) -> tuple[Tensor, Tensor]:
    """Computes the losses of the samples, and the gradient of their sum at the scores.

    No graph is built.

    Args:
        scores: The scores of the samples.
        y: Their labels.
        task: The task; without one, the loss is cross-entropy.

    Returns:
        The losses (B,), and the gradient, in the shape of the scores.
    """
    if task is not None:
        return task.losses_and_slopes(checked_scores(scores, len(y)), y)
    if scores.dim() != 2 or y.dim() != 1:
        with torch.enable_grad():
            scores = scores.detach().requires_grad_()
            losses = sample_losses(scores, y)
        return losses.detach(), torch.autograd.grad(losses.sum(), scores)[0]
    logs = torch.ops.aten._log_softmax(checked_scores(scores, len(y)), 1, False)
    losses, total = torch.ops.aten.nll_loss_forward(logs, y, None, 0, -100)
    g = torch.ops.aten.nll_loss_backward(torch.ones_like(losses), logs, y, None, 0, -100, total)
    return losses, torch.ops.aten._log_softmax_backward_data(g, logs, 1, scores.dtype)


def gradients_of(loss: Tensor, model: FlatModel) -> tuple[Tensor, ...]:
    """Computes the gradient of a loss at each trainable parameter.

    Args:
        loss: A number with its graph.
        model: The model.

    Returns:
        One tensor for each parameter, in layout order; zeros where the loss does not see it.
    """
    return torch.autograd.grad(loss, model.parameters, materialize_grads=True)


def plain_gradient(
    model: FlatModel, x: Tensor, y: Tensor, loss_of: Loss = mean_loss
) -> tuple[Tensor, float]:
    """Computes the gradient of the mean loss, without clipping.

    Args:
        model: The model.
        x: The samples.
        y: Their labels.
        loss_of: The loss.

    Returns:
        The gradient in layout order, and the loss. Both are zero for an empty batch.
    """
    if not len(x):
        return torch.zeros_like(model.vector[: model.layout.trainable]), 0.0
    with torch.enable_grad():
        loss = loss_of(model, x, y)
    return torch.cat([gradient.flatten() for gradient in gradients_of(loss, model)]), loss.item()
