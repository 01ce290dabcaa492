"""Canary clients (Andrew et al. 2023): an estimate, and no bound, of a client's epsilon from one
run.

Clients that send random directions are nearly orthogonal to all else. The cosine of such a
direction with the sum of all releases is N(0, 1/d) for a client that took no part. For those that
took part, the mean of the cosines in standard deviations estimates mu.
"""

from __future__ import annotations

import numpy as np
import torch

from dpfl.audit.bounds import MeasuredEpsilon, epsilon_of
from dpfl.audit.sums import clients_for, server_view
from dpfl.client.task import ClientReply
from dpfl.privacy import Randomness, Release
from dpfl.privacy.mechanisms.clips.vector_clipping import clip_vector
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.server.aggregation.aggregate import noisy_sum, weighted_sum

DIMENSION = 4096
CANARIES = 100


def canary_clients(
    release: Release, rounds: int, delta: float, randomness: Randomness, population: int = CANARIES
) -> MeasuredEpsilon:
    """Estimates epsilon with a federation of canary clients.

    Args:
        release: The release of a round's sum.
        rounds: Number of rounds.
        delta: Delta of the guarantee.
        randomness: Source of all draws.
        population: Number of clients, all of them canaries.

    Returns:
        The estimate.
    """
    rng = randomness.generator("canary clients")
    model_release = release.for_model((DIMENSION,))
    rows = torch.from_numpy(rng.standard_normal((population, DIMENSION))).float()
    updates = [
        clip_vector(
            1e3 * model_release.clip.clip_norm * row,
            model_release.clip,
            ("weight",),
            (0, DIMENSION),
        )[0]
        for row in rows
    ]
    total = torch.zeros(DIMENSION)
    for number in range(rounds):
        replies = [
            ClientReply(int(client), updates[client])
            for client in model_release.sampling.draw(population, rng)
        ]
        noise = randomness.generator("canary clients noise", number)
        exact = weighted_sum(replies, torch.ones(population), DIMENSION)
        if model_release.noise_shares:
            total += _in_a_sum(model_release, model_release.noise_shares, exact, population, noise)
            continue
        total_with_shares = _with_shares(model_release, exact, len(replies), noise)
        total += noisy_sum(total_with_shares, len(replies), model_release, noise)
    cosines = torch.nn.functional.cosine_similarity(rows, total[None]).numpy().astype(np.float64)
    mu = max(0.0, float(cosines.mean()) * DIMENSION**0.5)
    how = f"estimate: cosines of {population} canary clients over {rounds} rounds"
    return MeasuredEpsilon(epsilon_of(mu, delta), None, population, how, mu)


def _in_a_sum(
    release: Release,
    noise_shares: NoiseShares,
    total: torch.Tensor,
    population: int,
    rng: np.random.Generator,
) -> torch.Tensor:
    """Adds the noise shares of the fewest honest survivors."""
    numbers = release.outward(total).numpy()
    whole = release.integer_sum(release.clip.clip_norm * population, clients_for(noise_shares))
    return release.inward(torch.from_numpy(server_view(whole, noise_shares, numbers, rng))).float()


def _with_shares(
    release: Release, total: torch.Tensor, replies: int, rng: np.random.Generator
) -> torch.Tensor:
    """Adds each client's own noise share, where clients add the noise."""
    for _ in range(replies if release.shared_by else 0):
        total = release.add_noise(total, rng, share=1 / (release.shared_by or 1))
    return total
