"""The same federation and settings for every contender of a whole run of DP-SGD."""

from __future__ import annotations

import torch
from torch import Tensor

import dpfl
from benchmarks import datasets
from dpfl.data import IID, Federation

CLIENTS, TAU, BATCH = 10, 3, 90
CLIP, NOISE, RATE = 1.0, 1.1, 0.5
DELTA = 1e-5


def federation() -> Federation:
    """Returns MNIST split over ten clients."""
    return datasets.mnist().split(clients=CLIENTS, how=IID(), seed=0)


def small() -> Federation:
    """Returns a federation of sixteen images a client, for the check of a round without noise."""
    train, test = datasets.mnist().train, datasets.mnist().test
    parts = [
        (train.x[start : start + 16], train.y[start : start + 16])
        for start in range(0, 16 * CLIENTS, 16)
    ]
    return Federation.from_tensors(parts, test=(test.x[:100], test.y[:100]))


def sampling_rate(size: int) -> float:
    """Returns the rate that gives the expected batch."""
    return BATCH / size


def initial() -> torch.nn.Module:
    """Returns the model at its start."""
    return dpfl.models.cnn().build((1, 28, 28), 10, seed=0)


@torch.no_grad()
def accuracy(module: torch.nn.Module, x: Tensor, y: Tensor) -> float:
    """Returns the accuracy of a model on a test set."""
    module.eval()
    right = sum(
        int((module(x[rows]).argmax(1) == y[rows]).sum())
        for rows in torch.arange(len(x)).split(1000)
    )
    module.train()
    return right / len(x)
