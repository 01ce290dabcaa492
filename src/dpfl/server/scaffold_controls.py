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


def fresh(clients: int, parameters: int) -> Tensor:
    return torch.zeros(clients, parameters)


def corrections(controls: Tensor, clients: tuple[int, ...]) -> dict[int, Tensor]:
    """c - c_i, which each client adds to its gradients; c is the mean over all clients."""
    mean = controls.mean(0)
    return {client: mean - controls[client] for client in clients}


def renewed(controls: Tensor, updates: Mapping[int, Tensor], steps: int, rate: float) -> Tensor:
    """c_i <- c_i - c + (x - x_i) / (K eta), for those who replied."""
    mean, found = controls.mean(0), controls.clone()
    for client, update in updates.items():
        found[client] += -mean - update[: controls.shape[1]] / (steps * rate)
    return found
