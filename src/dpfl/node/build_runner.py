"""Where a run that a node joined is worked for: its model, from the owner's own code, on the node's
own samples.
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
from dpfl.models.catalog import Buildable, Model
from dpfl.models.columns import on_columns
from dpfl.node.load_data import digest
from dpfl.node.policy import NodePolicy
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.privacy.ledger.limit import Limit, SubLimit
from dpfl.protocol.proposal import Proposal
from dpfl.refusals import ProtocolError, RefusalReason

Thing = TypeVar("Thing")
SPARE = 1 << 20
"""Bytes of a letter that are not its model's."""


@dataclass(frozen=True)
class SingleEntry(Sequence[Thing]):
    """A list of which one place is known: a node has one client of a federation, under its number
    there.
    """

    place: int
    value: Thing

    @overload
    def __getitem__(self, index: int) -> Thing: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Thing]: ...
    def __getitem__(self, index: Any) -> Any:
        if index != self.place:
            raise IndexError(f"this node is client {self.place}")
        return self.value

    def __len__(self) -> int:
        return self.place + 1

    def __iter__(self) -> Iterator[Thing]:
        return iter((self.value,))


def shares_of(charter: NodePolicy, run: str, proposal: Proposal) -> tuple[SubLimit, ...]:
    """The owner's, and what the run says of itself: it spends no more than its own budget."""
    own = charter.shares(run)
    if proposal.epsilon is None or proposal.accountant == "none" or not proposal.events:
        return own
    return (*own, SubLimit(Limit(proposal.epsilon, proposal.delta, proposal.accountant), run=run))


def model_of(proposal: Proposal, held: Federation, charter: NodePolicy, size: int) -> Buildable:
    """By a name of the catalogue or of the policy. What does not fit, or is too large for a letter,
    is refused before it is built, by its shape alone; and so are features that are too large for
    the memory, by the `size` that the node declared."""
    most_bytes = charter.allow.most_bytes
    try:
        named = proposal.options
        model: Buildable = (
            Model(proposal.model, named)
            if is_path(proposal.model)
            else models.from_name(proposal.model, **dict(named))
        )
        model = on_columns(model, held.train.features)
        shape = _shape(model, held)
        needed = (
            4 * math.prod(shape) * charter.rows(size, held.rows_per_person)
            if feature_map(model, held.shape)
            else 0
        )
        if needed > charter.allow.most_memory:
            raise ProtocolError(RefusalReason.TOO_MUCH_MEMORY)
        if not is_path(proposal.model):
            _check_size(model, shape, proposal.learning.outputs, most_bytes)
        flat = FlatModel(built(model, shape, proposal.learning.outputs, 0), proposal.learning)
        if proposal.unit != "client":
            refuse_batch_statistics(flat.module)
    except (
        DpflError,
        TypeError,
        ValueError,
        RuntimeError,
        MemoryError,
        OverflowError,
        NotImplementedError,
    ):
        raise ProtocolError(RefusalReason.MODEL_NOT_ALLOWED) from None
    if 4 * flat.layout.size + SPARE > most_bytes:
        raise ProtocolError(RefusalReason.TOO_LARGE)
    return model


def _shape(model: Buildable, held: Federation) -> tuple[int, ...]:
    """Of what the model reads: samples, or their features."""
    features = feature_map(model, held.shape)
    return held.shape if features is None else tuple(features(held.train.x[:1]).shape[1:])


def features_of(model: Buildable, held: Federation) -> torch.Tensor:
    """What the model reads of all samples, each by itself; a sample too large for its features
    counts as nothing.
    """
    features = feature_map(model, held.shape)
    return held.train.x if features is None else features(held.train.x).nan_to_num_(0.0, 0.0, 0.0)


def _check_size(model: Buildable, shape: tuple[int, ...], outputs: int, most_bytes: int) -> None:
    with torch.device("meta"):
        numbers = sum(
            parameter.numel() for parameter in model.build(shape, outputs, 0).parameters()
        )
    if 4 * numbers > most_bytes:
        raise ProtocolError(RefusalReason.TOO_LARGE)


def build_runner(
    charter: NodePolicy, held: Federation, run: str, proposal: Proposal, size: int
) -> ClientRunner:
    """A node's part of a run; debits go to the node's one ledger, under all limits at once."""
    place = proposal.client
    model = model_of(proposal, held, charter, size)
    x = features_of(model, held)
    ledgers = ClientLedgers(
        charter.ledgers,
        SingleEntry(place, charter.name),
        charter.limits.unit,
        charter.limits.neighbours,
        charter.limit,
        SingleEntry(place, digest(held, charter.limits.unit)),
        shares=shares_of(charter, run, proposal),
    )
    data = ClientDatasets(
        x,
        held.train.y,
        SingleEntry(place, held.clients[0]),
        SingleEntry(place, size),
        held.persons if charter.limits.unit == "person" else None,
        held.rows_per_person,
    )
    context = ClientContext(
        run,
        model,
        proposal.learning,
        data,
        charter.randomness,
        ledgers,
        fingerprint=None,
        policy=charter.policy,
        timed=True,
    )
    return ClientRunner(context)
