"""Accuracy and loss on a data set."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from dpfl.models.flat import FlatModel, evaluating


def evaluate(model: FlatModel, x: Tensor, y: Tensor, batch: int = 1000) -> tuple[float, float]:
    """The share of right answers, and the mean cross-entropy."""
    right, loss = 0, 0.0
    with evaluating(model.module), torch.no_grad():
        for images, labels in zip(x.split(batch), y.split(batch), strict=True):
            logits = model.module(model.arrange(images))
            right += int((logits.argmax(1) == labels).sum())
            loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
    return right / len(y), loss / len(y)
