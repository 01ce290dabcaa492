"""Every task that a system's coordinator gives: its surveys, and its first rounds."""

from __future__ import annotations

import torch

import dpfl
from dpfl.algorithms import Algorithm
from dpfl.audit.audit import ready
from dpfl.client.task import ClientReply, ClientTask, RoundRequest
from dpfl.data import Federation
from dpfl.models import FlatModel
from dpfl.models.descriptions import Buildable
from dpfl.planning.planner import with_planned_rate
from dpfl.privacy import Keyed
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.server.coordinator import Coordinator
from dpfl.server.state import FederationFacts, RunState

BUDGET = dpfl.Budget(rounds=4)


def tasks_of(
    algorithm: Algorithm, federation: Federation, model: Buildable, secure: bool = False
) -> list[ClientTask]:
    """By clients that answer surveys with ones; nothing is trained."""
    given: list[ClientTask] = []
    flat = FlatModel(model.build(federation.shape, federation.task.outputs, 0), federation.task)
    sizes, layout = federation.sizes, flat.layout
    algorithm = ready(algorithm.for_model(layout).for_rounds(BUDGET.rounds, len(sizes)))
    algorithm = with_planned_rate(algorithm, BUDGET, sizes, layout.trainable)
    algorithm = algorithm.with_secure_noise() if secure else algorithm

    def answers(request: RoundRequest) -> list[ClientReply]:
        given.extend(request.tasks)
        return [_reply(task, federation) for task in request.tasks]

    public = range(len(sizes), len(sizes) + len(federation.public))
    accounts = {"none": 0, "round": 1}.get(algorithm.placement, len(sizes))
    state = RunState(
        flat.read(),
        torch.zeros(layout.size),
        algorithm.samples,
        algorithm.clients,
        [10_000] * accounts,
    )
    federated = FederationFacts("run", sizes, layout, public, None, None)
    coordinator = Coordinator(
        algorithm, BUDGET, federated, state, Keyed(0), answers, lambda vector: 0.0
    )
    for _ in range(2):
        request = coordinator.next_request()
        assert request is not None
        given.extend(request.tasks)
        coordinator.close_round(request.steps)
    return given


def _reply(task: ClientTask, federation: Federation) -> ClientReply:
    length = (
        federation.classes
        if isinstance(task.query, LabelQuery)
        else torch.Size(federation.shape).numel()
    )
    return ClientReply(
        task.client, torch.ones(1), raw={"answer": torch.full((length,), 0.1).numpy()}
    )
