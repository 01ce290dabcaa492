"""What the server asks of a client in a round, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dpfl.client.optimisers import Optimiser
from dpfl.privacy import Release


@dataclass(frozen=True)
class Local:
    """How a client trains: the optimiser, and the batch size where samples are not released privately."""

    optimiser: Optimiser
    batch_size: int = 64


@dataclass(frozen=True)
class Task:
    """One client's work in one round; the model's vector travels beside it."""

    round: int
    client: int
    steps: int
    local: Local
    clients: Release
    samples: Release | None = None
    horizon: int = 0


@dataclass(frozen=True)
class Order:
    """One round: the tasks of the cohort, from the same model."""

    round: int
    steps: int
    tasks: tuple[Task, ...]
    vector: Tensor
    digest: str


@dataclass(frozen=True)
class Reply:
    """A client's release, or why there is none."""

    client: int
    update: Tensor | None = None
    inside: bool = True
    refused: str = ""
    failed: str = ""
    diverged: bool = False
