"""The loss and accuracy of a model on a data set."""

from __future__ import annotations

import torch
from torch import Tensor

from dpfl.models.flat import FlatModel, evaluating
from dpfl.tasks import MultiClass


def evaluate(
    model: FlatModel, x: Tensor, y: Tensor, batch: int = 1000
) -> tuple[float | None, float]:
    """Evaluates a model.

    Args:
        model: The model.
        x: The samples.
        y: Their labels.
        batch: The number of samples at a time.

    Returns:
        The accuracy, or None where the task has none, and the mean loss.
    """
    scores, loss = compute_scores(model, x, y, batch)
    task = model.task or MultiClass(scores.shape[1])
    return task.live_metrics(scores.numpy(), y.numpy()).get("accuracy"), loss


def compute_scores(
    model: FlatModel, x: Tensor, y: Tensor, batch: int = 1000
) -> tuple[Tensor, float]:
    """Computes the scores of a data set.

    Args:
        model: The model.
        x: The samples.
        y: Their labels.
        batch: The number of samples at a time.

    Returns:
        The scores of all samples, and the mean loss.
    """
    scores, loss = [], 0.0
    with evaluating(model.module), torch.no_grad():
        for samples, labels in zip(x.split(batch), y.split(batch), strict=True):
            scores.append(model.module(model.arrange(samples)))
            loss += float(
                (model.task or MultiClass(scores[-1].shape[1])).losses(scores[-1], labels).sum()
            )
    return torch.cat(scores), loss / len(y)
