"""The loss that is trained, by the task of the model: a number for each sample."""

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
"""The mean over a batch, with its graph."""


def checked_scores(scores: object, samples: int) -> Tensor:
    if not isinstance(scores, torch.Tensor) or scores.shape[:1] != (samples,):
        raise DpflError(
            "The model must return one tensor of scores (samples, classes), a row for each sample "
            "of the batch."
        )
    return scores


def sample_losses(scores: Tensor, y: Tensor, task: Task | None = None) -> Tensor:
    """The task's loss of each sample; else cross-entropy, the mean over positions where a sample
    has several.
    """
    checked_scores(scores, len(y))
    if task is not None:
        return task.losses(scores, y)
    losses = functional.cross_entropy(scores, y, reduction="none")
    return losses if losses.dim() == 1 else losses.flatten(1).mean(1)


def mean_loss(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
    return sample_losses(model.module(model.arrange(x)), y, model.task).mean()


def losses_and_gradients(
    scores: Tensor, y: Tensor, task: Task | None = None
) -> tuple[Tensor, Tensor]:
    """The losses of the samples, and the gradient of their sum at the scores; no graph is built."""
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
    return torch.autograd.grad(loss, model.parameters, materialize_grads=True)
