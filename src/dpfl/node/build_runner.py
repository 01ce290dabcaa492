"""Builds what a node executes a run's tasks with: the model, from the owner's own code, and a
`ClientRunner` on the node's data and ledger.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import torch

from dpfl import models
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.runner import ClientRunner
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.import_path import is_path
from dpfl.models import FlatModel, feature_map, refuse_batch_statistics
from dpfl.models.build import built
from dpfl.models.catalog import Model
from dpfl.models.columns import on_columns
from dpfl.models.descriptions import Buildable
from dpfl.node.load_data import digest
from dpfl.node.policy import NodePolicy
from dpfl.node.run_checks import (
    feature_violations,
    model_message_violations,
    parameter_violations,
    refuse_first,
)
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.privacy.ledger.limit import Limit, SubLimit
from dpfl.privacy.units import protects_client
from dpfl.protocol.proposal import Proposal
from dpfl.refusals import ProtocolError, RefusalReason

Item = TypeVar("Item")
UNUSABLE_MODEL = (
    DpflError,
    TypeError,
    ValueError,
    RuntimeError,
    MemoryError,
    OverflowError,
    NotImplementedError,
)
"""What building a model raises where the model or its options do not fit the data."""


@dataclass(frozen=True)
class SingleEntry(Sequence[Item]):
    """A list of which one entry exists.

    A node is one client of a federation and keeps its number there, and knows nothing of the other
    clients.

    Attributes:
        place: The number of the entry.
        value: The entry.
    """

    place: int
    value: Item

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: Any) -> Any:
        if index != self.place:
            raise IndexError(f"this node is client {self.place}")
        return self.value

    def __len__(self) -> int:
        return self.place + 1

    def __iter__(self) -> Iterator[Item]:
        return iter((self.value,))


def run_sub_limits(policy: NodePolicy, run: str, proposal: Proposal) -> tuple[SubLimit, ...]:
    """Lists the limits that hold for a run beside the limit of all runs together.

    Args:
        policy: The node's policy.
        run: The run.
        proposal: The run as it was proposed.

    Returns:
        The owner's limits per year and per run, and the run's own budget: it spends no more than it
        said.
    """
    own = policy.sub_limits(run)
    if proposal.epsilon is None or proposal.accountant == "none" or not proposal.events:
        return own
    return (*own, SubLimit(Limit(proposal.epsilon, proposal.delta, proposal.accountant), run=run))


def run_model(proposal: Proposal, data: Federation, policy: NodePolicy, size: int) -> Buildable:
    """Chooses the model of a run by its name in the catalogue or in the policy.

    A model of the catalogue that is too large for a message is refused by its shape alone, before
    its weights exist. So are fixed features that are too large for the memory.

    Args:
        proposal: The run, which the policy allows.
        data: The node's data.
        policy: The node's policy.
        size: The number of units that the node declared; the memory is judged by it.

    Returns:
        The model.

    Raises:
        ProtocolError: The model does not fit the data, a message or the memory.
    """
    try:
        model = on_columns(_named_model(proposal), data.train.features)
        shape = _input_shape(model, data)
        if feature_map(model, data.shape):
            rows = policy.rows_in_memory(size, data.rows_per_person)
            refuse_first(feature_violations(policy, rows * math.prod(shape)))
        if not is_path(proposal.model):
            parameters = _count_parameters(model, shape, proposal.learning.outputs)
            refuse_first(parameter_violations(policy, parameters))
        flat = FlatModel(built(model, shape, proposal.learning.outputs, 0), proposal.learning)
        if not protects_client(proposal.unit):
            refuse_batch_statistics(flat.module)
    except UNUSABLE_MODEL:
        raise ProtocolError(RefusalReason.MODEL_NOT_ALLOWED) from None
    refuse_first(model_message_violations(policy, flat.layout.size))
    return model


def _named_model(proposal: Proposal) -> Buildable:
    if is_path(proposal.model):
        return Model(proposal.model, proposal.options)
    return models.from_name(proposal.model, **dict(proposal.options))


def _input_shape(model: Buildable, data: Federation) -> tuple[int, ...]:
    """Finds the shape of what the model reads: of a sample, or of its features."""
    features = feature_map(model, data.shape)
    return data.shape if features is None else tuple(features(data.train.x[:1]).shape[1:])


def _count_parameters(model: Buildable, shape: tuple[int, ...], outputs: int) -> int:
    """Counts the numbers of the parameters without allocating them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in model.build(shape, outputs, 0).parameters())


def features_of(model: Buildable, data: Federation) -> torch.Tensor:
    """Computes what the model reads of every sample, each by itself.

    Args:
        model: The model.
        data: The node's data.

    Returns:
        The samples, or their fixed features. A feature that is not finite counts as 0.
    """
    features = feature_map(model, data.shape)
    return data.train.x if features is None else features(data.train.x).nan_to_num_(0.0, 0.0, 0.0)


def build_runner(
    policy: NodePolicy, data: Federation, run: str, proposal: Proposal, size: int
) -> ClientRunner:
    """Builds the runner of a run. It debits the node's one ledger, under all limits at once.

    Args:
        policy: The node's policy.
        data: The node's data.
        run: The run.
        proposal: The run as it was proposed, which the policy allows.
        size: The number of units that the node declared.

    Returns:
        A runner for the node's place among the run's clients.

    Raises:
        ProtocolError: The model does not fit.
        DpflError: The ledger cannot be used.
    """
    place = proposal.client
    model = run_model(proposal, data, policy, size)
    ledgers = ClientLedgers(
        policy.ledgers,
        SingleEntry(place, policy.name),
        policy.limits.unit,
        policy.limits.neighbours,
        policy.limit,
        SingleEntry(place, digest(data, policy.limits.unit)),
        shares=run_sub_limits(policy, run, proposal),
    )
    datasets = ClientDatasets(
        features_of(model, data),
        data.train.y,
        SingleEntry(place, data.clients[0]),
        SingleEntry(place, size),
        data.persons if policy.limits.unit == "person" else None,
        data.rows_per_person,
    )
    context = ClientContext(
        run,
        model,
        proposal.learning,
        datasets,
        policy.randomness,
        ledgers,
        fingerprint=None,
        policy=policy.disclosure_rules,
        timed=True,
    )
    return ClientRunner(context)
