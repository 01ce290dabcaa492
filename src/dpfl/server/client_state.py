"""A vector for each client that the server keeps from round to round, so that clients keep
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dpfl.lazy_import import torch
from dpfl.models import Layout
from dpfl.server.scaffold_controls import corrections, fresh, renewed
from dpfl.server.steps.policy import RoundObservation

if TYPE_CHECKING:
    from torch import Tensor


class ClientState(Protocol):
    """A vector per client that the server keeps, so that clients keep nothing."""

    def fresh(self, clients: int, layout: Layout) -> Tensor:
        """A row for each client, before the first round."""

    def sent(self, kept: Tensor, clients: tuple[int, ...]) -> dict[int, Tensor]:
        """What goes to each of these clients beside the model, if anything."""

    def renewed(self, kept: Tensor, seen: RoundObservation) -> Tensor:
        """The rows after a round: those of the clients that replied are new."""


@dataclass(frozen=True)
class ControlVariates:
    """Control variates: c - c_i goes to client i."""

    def fresh(self, clients: int, layout: Layout) -> Tensor:
        return fresh(clients, layout.trainable)

    def sent(self, kept: Tensor, clients: tuple[int, ...]) -> dict[int, Tensor]:
        return corrections(kept, clients)

    def renewed(self, kept: Tensor, seen: RoundObservation) -> Tensor:
        return renewed(kept, seen.updates, seen.steps, seen.facts.rate)


@dataclass(frozen=True)
class LastModels:
    """The model with which each client ended its last round, read off its upload; nan until it has
    replied once.
    """

    def fresh(self, clients: int, layout: Layout) -> Tensor:
        return torch.full((clients, layout.size), torch.nan)

    def sent(self, kept: Tensor, clients: tuple[int, ...]) -> dict[int, Tensor]:
        return {client: kept[client] for client in clients if not kept[client, 0].isnan()}

    def renewed(self, kept: Tensor, seen: RoundObservation) -> Tensor:
        found = kept.clone()
        for client, update in seen.updates.items():
            found[client] = seen.vector + update
        return found
