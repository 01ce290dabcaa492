"""Vectors that the server keeps for each client from round to round, so that clients keep
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dpfl.lazy_import import torch
from dpfl.models import Layout
from dpfl.server.scaffold_controls import corrections, initial_controls, updated_controls
from dpfl.server.steps.policy import RoundObservation

if TYPE_CHECKING:
    from torch import Tensor


class ClientState(Protocol):
    """One vector per client that the server keeps, so that clients keep nothing."""

    def initial(self, clients: int, layout: Layout) -> Tensor:
        """Returns the vectors before the first round.

        Args:
            clients: How many clients the federation has.
            layout: The layout of the model.

        Returns:
            One row per client.
        """

    def for_clients(self, vectors: Tensor, clients: tuple[int, ...]) -> dict[int, Tensor]:
        """Returns what goes to clients beside the model.

        Args:
            vectors: One row per client of the federation.
            clients: The clients of a round.

        Returns:
            One vector for each of these clients that needs one.
        """

    def after_round(self, vectors: Tensor, observation: RoundObservation) -> Tensor:
        """Computes the vectors after a round.

        Args:
            vectors: One row per client, before the round.
            observation: The round as the server saw it.

        Returns:
            One row per client. Only the rows of clients that replied have changed.
        """


@dataclass(frozen=True)
class ControlVariates(ClientState):
    """Control variates: c - c_i goes to client i."""

    def initial(self, clients: int, layout: Layout) -> Tensor:
        return initial_controls(clients, layout.trainable)

    def for_clients(self, vectors: Tensor, clients: tuple[int, ...]) -> dict[int, Tensor]:
        return corrections(vectors, clients)

    def after_round(self, vectors: Tensor, observation: RoundObservation) -> Tensor:
        return updated_controls(
            vectors, observation.updates, observation.steps, observation.step_facts.rate
        )


@dataclass(frozen=True)
class LastModels(ClientState):
    """The model with which each client ended its last round, computed from its update; nan until
    the client has replied once.
    """

    def initial(self, clients: int, layout: Layout) -> Tensor:
        return torch.full((clients, layout.size), torch.nan)

    def for_clients(self, vectors: Tensor, clients: tuple[int, ...]) -> dict[int, Tensor]:
        return {client: vectors[client] for client in clients if not vectors[client, 0].isnan()}

    def after_round(self, vectors: Tensor, observation: RoundObservation) -> Tensor:
        following = vectors.clone()
        for client, update in observation.updates.items():
            following[client] = observation.vector + update
        return following
