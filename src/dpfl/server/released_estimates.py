"""What can be read off released gradients alone, for step policies and schedules: post-processing,
which costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpfl.lazy_import import torch
from dpfl.server.steps.ali_bounds import released_slope, shares
from dpfl.server.steps.policy import RoundObservation

if TYPE_CHECKING:
    from torch import Tensor

LAG = 10
"""Rounds after which the gradient to compare with is renewed: a long way between two models stands
out of the noise.
"""


def released_gradient(seen: RoundObservation, client: int) -> Tensor:
    """The mean of the noisy gradients that SGD went along: the update is -rate times their sum."""
    return seen.updates[client][: seen.facts.parameters] / (-seen.facts.rate * seen.steps)


def noise_energy(seen: RoundObservation, client: int) -> float:
    """E |noise|^2 in that mean."""
    facts = seen.facts
    return (facts.multiplier * facts.clip / facts.batches[client]) ** 2 * facts.energy / seen.steps


def mean_gradient(seen: RoundObservation) -> tuple[Tensor, float]:
    """Over the clients, and the energy of the noise that is left in it: sum p_i^2 noise_i."""
    clients = list(seen.updates)
    p = shares([seen.facts.weights[client] for client in clients])
    mean = sum(
        (
            share * released_gradient(seen, client)
            for share, client in zip(p.tolist(), clients, strict=True)
        )
    )
    return mean, float(
        sum(share**2 * noise_energy(seen, client) for share, client in zip(p, clients, strict=True))
    )


def slope(name: str, seen: RoundObservation, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """|g - g'| / |w - w'| of mean gradients, the energy of their noise removed, as `name`; and what
    to remember.

    It is the slope of clipped gradients along the way of the global model. That of raw ones along a
    client's own way, which the papers mean, is another and larger number (docs/systems.md), and can
    be had of public clients or be paid for.
    """
    gradient, noise = mean_gradient(seen)
    model = seen.vector[: seen.facts.parameters]
    kept = {name: memory[name] for name in ("gradient", "model", "noise") if name in memory}
    if "model" not in memory or seen.round % LAG == 0:
        kept = {
            "gradient": gradient.clone(),
            "model": model.clone(),
            "noise": torch.tensor(noise, dtype=torch.float64),
        }
    if "model" not in memory:
        return kept
    difference, distance = (
        float((gradient - memory["gradient"]).norm()),
        float((model - memory["model"]).norm()),
    )
    found = released_slope(
        [difference], [distance], [1.0], [noise + float(memory["noise"])], seen.facts.parameters
    )
    return kept | {name: torch.tensor(found, dtype=torch.float64)}
