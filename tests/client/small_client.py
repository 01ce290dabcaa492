"""Two clients with 30 samples each, a small network, and tasks for them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.descent.optimisers import SGD
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask, LocalTraining
from dpfl.data.names import client_names
from dpfl.models import FlatModel, from_module
from dpfl.privacy import (
    Flat,
    Gaussian,
    Keyed,
    Ledger,
    Limit,
    Poisson,
    Release,
)
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.ledger.client_ledgers import ClientLedgers, ledger_path
from dpfl.tasks import MultiClass

FEATURES, CLASSES, IMAGES = 12, 4, 60


SAMPLES = Release(Poisson(0.5), Flat(1.0), Gaussian(1.0))


EVENT = SAMPLES.event(30)


PRIVATE = ClientTask(
    round=3, client=1, steps=2, local=LocalTraining(SGD(0.5)), clients=Release(), samples=SAMPLES
)


PLAIN = replace(PRIVATE, samples=None)


def network(width: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, width), nn.Tanh(), nn.Linear(width, CLASSES))


def site(
    folder: Path,
    module: nn.Module | None = None,
    run: str = "first",
    limit: Limit | None = None,
    **options: Any,
) -> ClientContext:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(IMAGES, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (IMAGES,), generator=generator)
    clients = (torch.arange(30), torch.arange(30, 60))
    described = from_module(module or network())
    ledgers = ClientLedgers(folder, client_names(2), "sample", ADD_REMOVE, limit)
    agreed = DisclosureRules(trusted=True, bare=True)
    plain = ClientContext(
        run,
        described,
        MultiClass(CLASSES),
        ClientDatasets(x, y, clients, (30, 30)),
        Keyed(0),
        ledgers,
        disclosure_rules=agreed,
    )
    return replace(plain, **options)


def with_rows(where: ClientContext, *rows: Tensor, **options: Any) -> ClientContext:
    """The same context with other rows of the clients."""
    return replace(where, data=replace(where.data, rows=rows, **options))


SIZE = FlatModel(network()).layout.size


def start(module: nn.Module | None = None) -> Tensor:
    return FlatModel(module or network()).read()


def work(
    where: ClientContext, task: ClientTask = PRIVATE, vector: Tensor | None = None
) -> ClientReply:
    node = ClientRunner(where)
    try:
        return node.work(task, start() if vector is None else vector)
    finally:
        node.close()


def spent(folder: Path, client: int = 1) -> dict[Any, int]:
    ledger = Ledger.read(ledger_path(folder, client_names(2)[client]))
    try:
        return ledger.spending()
    finally:
        ledger.close()
