"""A few real rounds, coordinator and nodes as they are, with everything that passes between them
kept.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from dpfl.algorithms import Algorithm
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.task import ClientReply, RoundRequest
from dpfl.data.names import client_names
from dpfl.engines import local_engine
from dpfl.models import Buildable, FlatModel, from_module
from dpfl.privacy import Budget, Ledger, Randomness
from dpfl.privacy.ledger.client_ledgers import FEDERATION, ClientLedgers
from dpfl.server.coordinator import Coordinator, FederationFacts, RunState
from dpfl.tasks import MultiClass, Task

ROWS_OF_A_PERSON = 3
LEFT = 40
"""Releases that every account has left, so that steps that adapt have something to weigh against
rounds.
"""


@dataclass(frozen=True)
class TestBed:
    """Who holds what: rows of x and y, the sizes declared, and one client whose data is public.

    Where `persons` are protected, each row of x and y is one person, who has it several times at a
    node: the same vector if it is theirs as a whole, and several times as much if any of their rows
    counts by itself.
    """

    model: Buildable
    x: Tensor
    y: Tensor
    classes: int
    clients: Sequence[Tensor]
    declared: Sequence[int]
    public: Sequence[Tensor] = ()
    persons: bool = False
    learns: Task | None = None

    @property
    def task(self) -> Task:
        return self.learns or MultiClass(self.classes)

    def protecting(self, algorithm: Algorithm) -> TestBed:
        return replace(self, persons=algorithm.unit == "person")

    def flat(self) -> FlatModel:
        return FlatModel(self.model.build(tuple(self.x.shape[1:]), self.classes, seed=0), self.task)

    def site(self, randomness: Randomness, ledgers: ClientLedgers | None = None) -> ClientContext:
        declared = (*self.declared, *(len(rows) for rows in self.public))
        everyone = (*self.clients, *self.public)
        data = ClientDatasets(self.x, self.y, everyone, declared)
        data = _of_persons(data) if self.persons else data
        return ClientContext("audit", self.model, self.task, data, randomness, ledgers)


def _of_persons(data: ClientDatasets) -> ClientDatasets:
    """Every row as a person with a few of them."""
    unit_ids = torch.arange(len(data.x)).repeat_interleave(ROWS_OF_A_PERSON)
    rows = [
        (rows[:, None] * ROWS_OF_A_PERSON + torch.arange(ROWS_OF_A_PERSON)).flatten()
        for rows in data.rows
    ]
    return replace(data, x=data.x[unit_ids], y=data.y[unit_ids], rows=rows, unit_ids=unit_ids)


@dataclass(frozen=True)
class ObservedRound:
    """What the server asked and got in one round, surveys and public clients included, and what it
    then had.
    """

    orders: Sequence[RoundRequest]
    replies: Sequence[Sequence[ClientReply]]
    state: RunState
    asked: RoundRequest


@dataclass
class _Recording:
    orders: list[RoundRequest] = field(default_factory=list)
    replies: list[list[ClientReply]] = field(default_factory=list)


def play(
    algorithm: Algorithm,
    ground: TestBed,
    randomness: Randomness,
    rounds: int = 4,
    ledgers: Path | None = None,
    lost: int = 0,
) -> list[ObservedRound]:
    """The rounds of a run. With `ledgers` every client keeps its own there; without, nothing is
    paid for. The first `lost` replies of every round never arrive.
    """
    with tempfile.TemporaryDirectory(prefix="dpfl-audit-") as folder:
        place = ledgers or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        made, ground = (
            algorithm.for_model(ground.flat().layout).for_rounds(rounds, len(ground.clients)),
            ground.protecting(algorithm),
        )
        central = _ledgers(made, (FEDERATION,), place).open(0) if made.trusts_server else None
        try:
            return _play(made, ground, randomness, rounds, ledgers, central, lost)
        finally:
            if central:
                central.close()


def _play(
    made: Algorithm,
    ground: TestBed,
    randomness: Randomness,
    rounds: int,
    ledgers: Path | None,
    central: Ledger | None,
    lost: int,
) -> list[ObservedRound]:
    flat = ground.flat()
    clients = len(ground.clients)
    public = range(clients, clients + len(ground.public))
    federated = FederationFacts("audit", ground.declared, flat.layout, public, central)
    remaining = [LEFT] * (clients if made.ledger_per_client else 1)
    state = RunState(
        flat.read(), torch.zeros(flat.layout.size), made.samples, made.clients, remaining
    )
    kept, played = _Recording(), []
    own = (
        _ledgers(made, client_names(clients), ledgers)
        if ledgers and made.ledger_per_client
        else None
    )
    site = replace(ground.site(randomness, own), policy=made.policy, public=public)
    with closing(local_engine(site, flat.layout.size)) as engine:

        def ask(order: RoundRequest) -> list[ClientReply]:
            replies = engine.run(order)
            kept.orders.append(order)
            kept.replies.append(copy.deepcopy(replies))  # the memory of an update may be used again
            return replies

        # A loss on public data is a function of the model; any will do.
        coordinator = Coordinator(
            made,
            Budget(rounds=rounds),
            federated,
            state,
            randomness,
            ask,
            lambda at: float(at.norm()),
        )
        while (order := coordinator.next_order()) is not None:
            arrived = [
                *(
                    ClientReply(task.client, failed="lost on its way")
                    for task in order.tasks[:lost]
                ),
                *ask(order)[lost:],
            ]
            coordinator.aggregate(arrived)
            coordinator.close_round(order.steps)
            played.append(
                ObservedRound(
                    tuple(kept.orders), tuple(kept.replies), copy.deepcopy(coordinator.state), order
                )
            )
            kept.orders.clear()
            kept.replies.clear()
    return played


def _ledgers(algorithm: Algorithm, owners: Sequence[str], folder: Path) -> ClientLedgers:
    assert algorithm.release is not None
    return ClientLedgers(folder, owners, algorithm.unit, algorithm.release.neighbours)


def linear(inputs: int, classes: int = 2, weight: float = 0.0) -> Buildable:
    """A linear model without bias, of which a sample's gradient is known: (p - label) x."""
    layer = nn.Linear(inputs, classes, bias=False)
    nn.init.constant_(layer.weight, weight)
    return from_module(nn.Sequential(nn.Flatten(), layer))
