"""A coordinator of four clients and replies made by hand, for the tests of a round."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dpfl import Budget
from dpfl.algorithms import Algorithm
from dpfl.client.task import ClientReply, RoundRequest
from dpfl.models import FlatModel
from dpfl.privacy import Keyed, Ledger, Limit, Randomness
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.server.coordinator import Coordinator
from dpfl.server.state import FederationFacts, RunState

CLIENTS = 4


def flat() -> FlatModel:
    torch.manual_seed(0)
    return FlatModel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))


SIZE = flat().layout.size


def nobody(request: RoundRequest) -> list[ClientReply]:
    raise AssertionError("nobody asked for a public clip")


def coordinator(
    algorithm: Algorithm,
    folder: Path | None = None,
    budget: Budget = Budget(rounds=100),
    randomness: Randomness = Keyed(0),
    limit: Limit | None = None,
    **options: Any,
) -> Coordinator:
    ledger = (
        Ledger.open(folder / "federation.sqlite", "federation", "client", ADD_REMOVE, limit)
        if folder
        else None
    )
    federated = FederationFacts("run", [10, 20, 30, 40], flat().layout, ledger=ledger, limit=limit)
    vector = torch.zeros(SIZE)
    remaining = [MAX_RELEASES] * (CLIENTS if algorithm.unit == "sample" else 1)
    state = RunState(vector, torch.zeros(SIZE), algorithm.samples, algorithm.clients, remaining)
    return Coordinator(
        algorithm,
        budget,
        federated,
        replace(state, **options),
        randomness,
        nobody,
        lambda vector: 0.0,
    )


def good(*clients: int) -> list[ClientReply]:
    return [ClientReply(client, torch.full((SIZE,), float(client + 1))) for client in clients]
