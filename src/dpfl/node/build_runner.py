"""Builds what a node executes a run's tasks with: a `ClientRunner` on its data and ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import torch

from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.runner import ClientRunner
from dpfl.data import Federation
from dpfl.models import feature_map
from dpfl.models.descriptions import Buildable
from dpfl.node.load_data import digest
from dpfl.node.policy import NodePolicy
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.privacy.ledger.limit import Limit, SubLimit
from dpfl.privacy.units import protects_person
from dpfl.protocol.proposal import Proposal

Item = TypeVar("Item")


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
    policy: NodePolicy,
    data: Federation,
    run: str,
    proposal: Proposal,
    size: int,
    model: Buildable,
) -> ClientRunner:
    """Builds the runner of a run. It debits the node's one ledger, under all limits at once.

    Args:
        policy: The node's policy.
        data: The node's data.
        run: The run.
        proposal: The run as it was proposed, which the policy allows.
        size: The number of units that the node declared.
        model: The run's model, which `PolicyChecker.check_model` has accepted.

    Returns:
        A runner for the node's place among the run's clients.

    Raises:
        DpflError: The ledger cannot be used.
    """
    place = proposal.client
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
        data.persons if protects_person(policy.limits.unit) else None,
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
        disclosure_rules=policy.disclosure_rules,
        timed=True,
    )
    return ClientRunner(context)
