"""Runs a few real rounds, and keeps everything that passes between coordinator and clients."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from dpfl.algorithms import Algorithm
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.task import ClientReply, RoundRequest
from dpfl.data.names import client_names
from dpfl.engines import Engine, local_engine
from dpfl.models import Buildable, FlatModel, from_module
from dpfl.privacy import Budget, Randomness
from dpfl.privacy.ledger.client_ledgers import FEDERATION, ClientLedgers
from dpfl.privacy.units import protects_person
from dpfl.server.coordinator import Coordinator, FederationFacts, RunState
from dpfl.tasks import MultiClass, Task

ROWS_OF_A_PERSON = 3
RELEASES_LEFT = 40
"""Releases that every ledger has room for, so that adaptive steps can weigh them against rounds."""


@dataclass(frozen=True)
class TestBed:
    """Clients with small data sets, as a game needs them.

    With `persons`, each row of x and y is one person, who has it several times at a client: the
    gradient of a person is the same if it is clipped as a whole, and several times as long if each
    row were clipped by itself.

    Attributes:
        model: The model.
        x: Samples.
        y: Labels.
        classes: Number of classes.
        clients: Rows of each client.
        declared_sizes: Declared number of samples per client.
        public: Rows of each public client.
        persons: Whether each row is a person.
        own_task: What is predicted; by default one of the classes.
    """

    model: Buildable
    x: Tensor
    y: Tensor
    classes: int
    clients: Sequence[Tensor]
    declared_sizes: Sequence[int]
    public: Sequence[Tensor] = ()
    persons: bool = False
    own_task: Task | None = None

    @property
    def task(self) -> Task:
        """What is predicted."""
        return self.own_task or MultiClass(self.classes)

    def protecting(self, algorithm: Algorithm) -> TestBed:
        """Adapts the data to the unit that an algorithm protects.

        Args:
            algorithm: The algorithm.

        Returns:
            The test bed, with persons if the algorithm protects persons.
        """
        return replace(self, persons=protects_person(algorithm.unit))

    def flat(self) -> FlatModel:
        """Builds the model.

        Returns:
            The model as one flat vector.
        """
        return FlatModel(self.model.build(tuple(self.x.shape[1:]), self.classes, seed=0), self.task)

    def context(
        self, randomness: Randomness, ledgers: ClientLedgers | None = None
    ) -> ClientContext:
        """Builds what the clients' runner needs.

        Args:
            randomness: Source of all random draws.
            ledgers: The clients' ledgers; None if nothing is to be paid for.

        Returns:
            The context of all clients.
        """
        sizes = (*self.declared_sizes, *(len(rows) for rows in self.public))
        data = ClientDatasets(self.x, self.y, (*self.clients, *self.public), sizes)
        if self.persons:
            data = _of_persons(data)
        return ClientContext("audit", self.model, self.task, data, randomness, ledgers)


def _of_persons(data: ClientDatasets) -> ClientDatasets:
    """Makes every row a person with a few copies of it."""
    unit_ids = torch.arange(len(data.x)).repeat_interleave(ROWS_OF_A_PERSON)
    copies = torch.arange(ROWS_OF_A_PERSON)
    rows = [(rows[:, None] * ROWS_OF_A_PERSON + copies).flatten() for rows in data.rows]
    return replace(data, x=data.x[unit_ids], y=data.y[unit_ids], rows=rows, unit_ids=unit_ids)


@dataclass(frozen=True)
class ObservedRound:
    """All messages between server and clients in one round, and the state afterwards.

    Attributes:
        requests: Every request of the round, those for queries and public clients included.
        replies: The replies to each of them.
        state: State of the server after the round.
        request: The request to train.
    """

    requests: Sequence[RoundRequest]
    replies: Sequence[Sequence[ClientReply]]
    state: RunState
    request: RoundRequest


class _Recorder:
    """Passes requests on to an engine, and keeps them with their replies."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._exchanges: list[tuple[RoundRequest, list[ClientReply]]] = []

    def run(self, request: RoundRequest) -> list[ClientReply]:
        replies = list(self._engine.run(request))
        # A copy: the engine may reuse the memory of an update.
        self._exchanges.append((request, copy.deepcopy(replies)))
        return replies

    def round(self, state: RunState, request: RoundRequest) -> ObservedRound:
        """Returns what passed since the last call."""
        exchanges, self._exchanges = self._exchanges, []
        requests, replies = zip(*exchanges, strict=True)
        return ObservedRound(requests, replies, copy.deepcopy(state), request)


def play(
    algorithm: Algorithm,
    test_bed: TestBed,
    randomness: Randomness,
    rounds: int = 4,
    ledgers: Path | None = None,
    missing: int = 0,
) -> list[ObservedRound]:
    """Runs some rounds with the real coordinator and the real clients.

    Args:
        algorithm: The algorithm, with its noise.
        test_bed: The clients and their data.
        randomness: Source of all random draws.
        rounds: Number of rounds.
        ledgers: Folder for the clients' ledgers. Without it clients pay for nothing.
        missing: Number of clients whose replies are lost in every round, the first ones.

    Returns:
        What was observed in each round.
    """
    layout, clients = test_bed.flat().layout, len(test_bed.clients)
    algorithm = algorithm.for_model(layout).for_rounds(rounds, clients)
    test_bed = test_bed.protecting(algorithm)
    with ExitStack() as stack:
        folder = ledgers or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="dpfl-audit-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        federation_ledger = client_ledgers = None
        if algorithm.trusts_server:
            federation_ledger = _ledgers(algorithm, (FEDERATION,), folder).open(0)
            stack.callback(federation_ledger.close)
        if ledgers and algorithm.ledger_per_client:
            client_ledgers = _ledgers(algorithm, client_names(clients), folder)
        public = range(clients, clients + len(test_bed.public))
        context = test_bed.context(randomness, client_ledgers)
        context = replace(context, disclosure_rules=algorithm.disclosure_rules, public=public)
        recorder = _Recorder(stack.enter_context(closing(local_engine(context, layout.size))))
        facts = FederationFacts("audit", test_bed.declared_sizes, layout, public, federation_ledger)
        coordinator = Coordinator(
            algorithm,
            Budget(rounds=rounds),
            facts,
            _start(algorithm, test_bed),
            randomness,
            recorder.run,
            _any_loss,
        )
        return list(_rounds(coordinator, recorder, missing))


def _start(algorithm: Algorithm, test_bed: TestBed) -> RunState:
    vector = test_bed.flat().read()
    accounts = len(test_bed.clients) if algorithm.ledger_per_client else 1
    return RunState(
        vector,
        torch.zeros(len(vector)),
        algorithm.samples,
        algorithm.clients,
        [RELEASES_LEFT] * accounts,
    )


def _any_loss(vector: Tensor) -> float:
    """Stands for the loss on public data: any function of the model will do."""
    return float(vector.norm())


def _rounds(coordinator: Coordinator, recorder: _Recorder, missing: int) -> Iterator[ObservedRound]:
    while (request := coordinator.next_request()) is not None:
        replies = recorder.run(request)[missing:]
        failures = [
            ClientReply(task.client, failure="lost on its way") for task in request.tasks[:missing]
        ]
        coordinator.aggregate([*failures, *replies])
        coordinator.close_round(request.steps)
        yield recorder.round(coordinator.state, request)


def _ledgers(algorithm: Algorithm, owners: Sequence[str], folder: Path) -> ClientLedgers:
    assert algorithm.release is not None
    return ClientLedgers(folder, owners, algorithm.unit, algorithm.release.neighbours)


def linear(inputs: int, classes: int = 2, weight: float = 0.0) -> Buildable:
    """Builds a linear model without bias: the gradient of a sample is (p - label) x.

    Args:
        inputs: Number of inputs.
        classes: Number of classes.
        weight: Value of every weight.

    Returns:
        The model.
    """
    layer = nn.Linear(inputs, classes, bias=False)
    nn.init.constant_(layer.weight, weight)
    return from_module(nn.Sequential(nn.Flatten(), layer))
