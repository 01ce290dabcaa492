"""Control variates of SCAFFOLD (Karimireddy et al. 2020, option II), kept by the server.

A client's c_i follows from what it uploads, so the server can compute it: clients keep nothing from
round to round, and where uploads carry noise (DP-SCAFFOLD, Noble et al. 2022) the controls are
post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpfl.lazy_import import torch

if TYPE_CHECKING:
    from torch import Tensor


def initial_controls(clients: int, parameters: int) -> Tensor:
    """Returns the controls before the first round.

    Args:
        clients: How many clients the federation has.
        parameters: How many numbers of the model the steps train.

    Returns:
        Zeros, one row per client.
    """
    return torch.zeros(clients, parameters)


def corrections(controls: Tensor, clients: tuple[int, ...]) -> dict[int, Tensor]:
    """Computes c - c_i, which each client adds to its gradients.

    Args:
        controls: One row c_i per client of the federation.
        clients: The clients that need a correction.

    Returns:
        The correction of each of these clients. c is the mean over all clients of the federation.
    """
    mean = controls.mean(0)
    return {client: mean - controls[client] for client in clients}


def updated_controls(
    controls: Tensor, updates: Mapping[int, Tensor], steps: int, rate: float
) -> Tensor:
    """Computes c_i <- c_i - c + (x - x_i) / (K eta) for the clients that replied.

    Args:
        controls: One row c_i per client, before the round.
        updates: The update x_i - x of each client that replied.
        steps: The local steps K of the round.
        rate: The learning rate eta of the clients.

    Returns:
        The controls after the round. Rows of clients that did not reply are unchanged.
    """
    mean, following = controls.mean(0), controls.clone()
    for client, update in updates.items():
        following[client] += -mean - update[: controls.shape[1]] / (steps * rate)
    return following
