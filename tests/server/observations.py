"""Rounds of SGD on a quadratic as the server sees them, and what a step policy learns from them."""

import torch

from dpfl.server.steps.policy import RoundObservation, StepFacts, StepPolicy

D = 2000
FACTS = StepFacts(
    50,
    0.5,
    1.1,
    1.0,
    D,
    batches=(60.0, 30.0, 90.0),
    weights=(0.6, 0.3, 0.9),
    energy=D,
    divisors=(60.0, 30.0, 90.0),
)


def quadratic(seed: int, rounds: int, curvature: float) -> list[RoundObservation]:
    """Rounds of SGD on curvature / 2 |w|^2 at three clients, tau = 2, with the noise that the facts
    state.
    """
    generator = torch.Generator().manual_seed(seed)
    w, seen = torch.ones(D), []
    for number in range(rounds):
        updates = {}
        for client, batch in enumerate(FACTS.batches):
            x = w.clone()
            for _ in range(2):
                noise = FACTS.multiplier * FACTS.clip / batch * torch.randn(D, generator=generator)
                x -= FACTS.rate * (curvature * x + noise)
            updates[client] = x - w
        seen.append(RoundObservation(FACTS, number, 2, w, updates))
        w = w + sum(weight / 1.8 * updates[client] for client, weight in enumerate(FACTS.weights))
    return seen


def learnt(policy: StepPolicy, rounds: list[RoundObservation]) -> dict[str, torch.Tensor]:
    memory: dict[str, torch.Tensor] = {}
    for seen in rounds:
        memory = policy.learn(seen, memory)
    return memory
