"""Canary clients (Andrew et al. 2023): an estimate of a client's epsilon from one run, and no bound.

Clients that send random directions are nearly orthogonal to all else, so the cosine of such a direction with the sum of all
that was released is N(0, 1/d) for one that took no part. How far the cosines of those that did are from it tells epsilon.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import norm

from dpfl.audit.bounds import LARGEST, Measured
from dpfl.client.task import Reply
from dpfl.privacy import Randomness, Release
from dpfl.privacy.clip import clip_vector
from dpfl.server.aggregate import noisy_mean, weighted_sum

DIMENSION = 4096
CANARIES = 200


def canary_clients(release: Release, rounds: int, delta: float, randomness: Randomness, population: int = CANARIES) -> Measured:
    """All clients are canaries, drawn as the release draws; the server adds its noise, round after round."""
    rng = randomness.generator("canary clients")
    fitted = release.fitted((DIMENSION,))
    rows = torch.from_numpy(rng.standard_normal((population, DIMENSION))).float()
    updates = [clip_vector(1e3 * fitted.clip.level * row, fitted.clip, ("weight",), (0, DIMENSION))[0] for row in rows]
    total = torch.zeros(DIMENSION)
    for number in range(rounds):
        replies = [Reply(int(client), updates[client]) for client in fitted.sampling.draw(population, rng)]
        noise = randomness.generator("canary clients noise", number)
        summed = _with_shares(fitted, weighted_sum(replies, torch.ones(population), DIMENSION), len(replies), noise)
        total += noisy_mean(summed, len(replies), population, 1.0, fitted, noise)
    cosines = torch.nn.functional.cosine_similarity(rows, total[None]).numpy().astype(np.float64)
    epsilon = two_gaussians(float(cosines.mean()), float(cosines.std(ddof=1)), 0.0, DIMENSION**-0.5, delta)
    return Measured(epsilon, None, population, f"estimate: cosines of {population} canary clients over {rounds} rounds")


def _with_shares(release: Release, total: torch.Tensor, replies: int, rng: np.random.Generator) -> torch.Tensor:
    """What the clients add themselves, where the noise is theirs."""
    for _ in range(replies if release.shared_by else 0):
        total = release.noised(total, rng, share=1 / (release.shared_by or 1))
    return total


def two_gaussians(mean: float, deviation: float, null_mean: float, null_deviation: float, delta: float) -> float:
    """The least epsilon at which these two normal distributions are (epsilon, delta)-close, both ways round."""
    spread = max(deviation, null_deviation)
    points = np.linspace(min(mean, null_mean) - 12 * spread, max(mean, null_mean) + 12 * spread, 40_001)
    ins, outs = norm.logpdf(points, mean, deviation), norm.logpdf(points, null_mean, null_deviation)
    step = points[1] - points[0]

    def excess(epsilon: float) -> float:
        return max(_above(ins, outs, epsilon), _above(outs, ins, epsilon)) * step

    low, high = 0.0, LARGEST
    if excess(0.0) <= delta:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > delta else (low, middle)
    return high


def _above(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(np.exp(one) - np.exp(np.minimum(other + epsilon, 700)), 0).sum())
