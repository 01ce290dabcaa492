"""Clients for tests of engines on this machine: most are in good health, two are not."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import ClientTask, LocalTraining, RoundRequest
from dpfl.data.names import client_names
from dpfl.models import FlatModel, from_module
from dpfl.privacy import Flat, Gaussian, Keyed, Limit, Poisson, Release
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.tasks import MultiClass

FEATURES, CLASSES = 6, 3
SIZES = (30, 10, 40, 20)


class Mortal(nn.Module):
    """Takes its process along (SIGKILL), or raises, where the images say so."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if bool((x == 666).any()):
            os.kill(os.getpid(), signal.SIGKILL)
        if bool((x == 667).any()):
            raise ValueError("an unlucky image")
        return self.layer(x)


def context(folder: Path) -> ClientContext:
    """Client 4 kills its worker, client 5 raises, the others are in good health."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(110, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (110,), generator=generator)
    x[100], x[105] = 666.0, 667.0
    ends = (0, 30, 40, 80, 100, 105, 110)
    clients = tuple(torch.arange(a, b) for a, b in pairwise(ends))
    ledgers = ClientLedgers(folder, client_names(6), "sample", ADD_REMOVE, Limit(50.0, 1e-5, "rdp"))
    return ClientContext(
        "run",
        from_module(Mortal()),
        MultiClass(CLASSES),
        ClientDatasets(x, y, clients, (*SIZES, 5, 5)),
        Keyed(0),
        ledgers,
    )


def request(*clients: int, round: int = 0, steps: int = 2) -> RoundRequest:
    samples = Release(Poisson(1.0), Flat(1.0), Gaussian(2.0))
    local = LocalTraining(SGD(0.1))
    tasks = tuple(ClientTask(round, client, steps, local, Release(), samples) for client in clients)
    return RoundRequest(round, steps, tasks, FlatModel(Mortal()).read() + round)


def model_size() -> int:
    """How many numbers the model has."""
    return FlatModel(Mortal()).layout.size
