"""The work of rows 4 and 5: users, images, cohort, local training, clip and noise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import dpfl
from benchmarks import datasets


@dataclass(frozen=True)
class Work:
    """A federation and its client-level training."""

    title: str
    network: str
    users: int
    images: int
    cohort: int
    batch: int
    epochs: int
    rate: float
    clip: float
    noise: float
    rounds: int

    @property
    def steps(self) -> int:
        """The local steps: an epoch takes every image once, and the last batch is smaller."""
        return self.epochs * -(-self.images // self.batch)


CIFAR = Work(
    "pfl-research's CIFAR-10 benchmark (1,000 users x 50 images)",
    "pfl-cnn",
    1000,
    50,
    50,
    10,
    1,
    0.1,
    0.4,
    1.0,
    4,
)
DIGITS = Work(
    "mlp, 1,920 users x 125 digits, 80 a round, 32 steps",
    "mlp",
    1920,
    125,
    80,
    64,
    16,
    0.1,
    1.0,
    1.0,
    4,
)


CHECK_RATE = 0.01
"""The learning rate of the check. It is low, since large steps amplify differences of rounding."""


def users_of(work: Work) -> list[tuple[Tensor, Tensor]]:
    """Returns the images and labels of each user, out of one fixed shuffle."""
    total = work.users * work.images
    if work.network == "mlp":
        x, y = datasets.many_digits(total)
    else:
        train = datasets.cifar10().train
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:total]
        x, y = train.x[order], train.y[order]
    return list(zip(x.split(work.images), y.split(work.images), strict=True))


def few(users: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Returns the users of the check that a round gives the same model."""
    return users[:6]


def test_of(work: Work) -> tuple[Tensor, Tensor]:
    """Returns the test set."""
    test = (datasets.mnist() if work.network == "mlp" else datasets.cifar10()).test
    return test.x, test.y


def network(work: Work, dropout: bool = True) -> nn.Module:
    """Returns the mlp of the catalogue, or the CNN of pfl-research with dropout."""
    if work.network == "mlp":
        return dpfl.models.mlp().build((1, 28, 28), 10, seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Conv2d(3, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25 if dropout else 0.0),
            nn.Flatten(),
            nn.Linear(14 * 14 * 64, 128),
            nn.ReLU(),
            nn.Dropout(0.5 if dropout else 0.0),
            nn.Linear(128, 10),
        )
        for layer in module:
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(layer.weight)
    return module
