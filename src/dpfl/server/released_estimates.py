"""Estimates that step policies and schedules compute from released gradients alone. This is
post-processing, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpfl.lazy_import import torch
from dpfl.server.steps.estimates import released_slope, shares
from dpfl.server.steps.policy import RoundObservation

if TYPE_CHECKING:
    from torch import Tensor

LAG = 10
"""Rounds after which the gradient to compare with is renewed: a long way between two models stands
out of the noise.
"""


def released_gradient(observation: RoundObservation, client: int) -> Tensor:
    """Reads the mean of a client's noisy gradients off its update.

    The update of plain SGD is -rate times the sum of the gradients.

    Args:
        observation: A round as the server saw it.
        client: The client's number.

    Returns:
        The mean over the steps of the round, for the entries that steps train.
    """
    step_facts = observation.step_facts
    return observation.updates[client][: step_facts.parameters] / (
        -step_facts.rate * observation.steps
    )


def noise_energy(observation: RoundObservation, client: int) -> float:
    """Computes E |noise|^2 in the mean of a client's noisy gradients.

    Args:
        observation: A round as the server saw it.
        client: The client's number.

    Returns:
        (sigma C / D)^2 E / tau, with D the divisor of a noisy sum, and E the energy of one noise
        vector of unit deviation.
    """
    step_facts = observation.step_facts
    deviation = step_facts.multiplier * step_facts.clip / step_facts.divisors[client]
    return deviation**2 * step_facts.energy / observation.steps


def mean_gradient(observation: RoundObservation) -> tuple[Tensor, float]:
    """Computes the weighted mean gradient over the clients of a round.

    Args:
        observation: A round as the server saw it.

    Returns:
        The mean sum_i p_i g_i, and the energy of the noise in it, sum_i p_i^2 noise_i.
    """
    clients = list(observation.updates)
    p = shares([observation.step_facts.weights[client] for client in clients])
    mean = sum(
        (
            share * released_gradient(observation, client)
            for share, client in zip(p.tolist(), clients, strict=True)
        )
    )
    energies = (noise_energy(observation, client) for client in clients)
    return mean, float(sum(share**2 * energy for share, energy in zip(p, energies, strict=True)))


def slope(
    name: str, observation: RoundObservation, memory: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Estimates |g - g'| / |w - w'| of mean gradients, with the energy of their noise removed.

    This is the slope of clipped gradients along the path of the global model. The papers mean the
    slope of raw gradients along a client's own path, which is another and larger number
    (docs/systems.md); public clients can give it, or a run can pay for it.

    Args:
        name: The name under which the slope is remembered.
        observation: A round as the server saw it.
        memory: What the policy remembers, with the gradient and the model to compare with.

    Returns:
        What to remember: gradient, model and noise to compare with, and the slope from the second
        round on.
    """
    gradient, noise = mean_gradient(observation)
    model = observation.vector[: observation.step_facts.parameters]
    reference = {key: memory[key] for key in ("gradient", "model", "noise") if key in memory}
    if "model" not in memory or observation.round % LAG == 0:
        reference = {
            "gradient": gradient.clone(),
            "model": model.clone(),
            "noise": torch.tensor(noise, dtype=torch.float64),
        }
    if "model" not in memory:
        return reference
    difference = float((gradient - memory["gradient"]).norm())
    distance = float((model - memory["model"]).norm())
    energy = noise + float(memory["noise"])
    estimate = released_slope(
        [difference], [distance], [1.0], [energy], observation.step_facts.parameters
    )
    return reference | {name: torch.tensor(estimate, dtype=torch.float64)}
