"""The loss that is trained: cross-entropy, a number for each sample."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dpfl.errors import DpflError
from dpfl.models import FlatModel


def checked_scores(scores: object, samples: int) -> Tensor:
    if not isinstance(scores, Tensor) or scores.shape[:1] != (samples,):
        raise DpflError("The model must return one tensor of scores (samples, classes), a row for each sample of the batch.")
    return scores


def sample_losses(scores: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each sample; the mean over positions where a sample has several."""
    losses = F.cross_entropy(checked_scores(scores, len(y)), y, reduction="none")
    return losses if losses.dim() == 1 else losses.flatten(1).mean(1)


def gradients_of(loss: Tensor, model: FlatModel) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, model.parameters, materialize_grads=True)
