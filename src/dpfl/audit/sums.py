"""The view of a server and its colluders on a secure sum: the sum over the fewest honest
clients.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpfl.client.task import SecureSumTerms
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares

SPARE = 2
"""Clients beyond the survivors, who may be lost."""


def honest(noise_shares: NoiseShares) -> int:
    """Counts the survivors that do not collude, independently of the code under audit.

    Args:
        noise_shares: Who shares the noise.

    Returns:
        Their number.
    """
    return noise_shares.survivors - noise_shares.colluders


def clients_for(noise_shares: NoiseShares | None, least: int = 1) -> int:
    """Chooses the number of clients of a test bed.

    Args:
        noise_shares: Who shares the noise of a secure sum; None without one.
        least: Least number of clients.

    Returns:
        As many as the sum needs, some of which may be lost; never so many that two different
        lists of survivors could both be valid.
    """
    if noise_shares is None:
        return least
    most = max(noise_shares.survivors, 2 * noise_shares.survivors - noise_shares.colluders - 1)
    return max(least, min(noise_shares.survivors + SPARE, most, 100))


def server_view(
    whole: IntegerSum, noise_shares: NoiseShares, vector: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Adds one client's vector to the noise of the other honest clients.

    Args:
        whole: The sum of integers.
        noise_shares: Who shares the noise.
        vector: The client's vector.
        rng: Source of the noise.

    Returns:
        The sum as the server sees it.
    """
    return beside(whole, noise_shares, whole.numbers(vector, rng), rng)


def beside(
    whole: IntegerSum, noise_shares: NoiseShares, numbers: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Adds what one client sent to the noise of the other honest clients.

    Args:
        whole: The sum of integers.
        noise_shares: Who shares the noise.
        numbers: What the client sent.
        rng: Source of the noise.

    Returns:
        The sum as the server sees it.
    """
    total = numbers.copy()
    for _ in range(honest(noise_shares) - 1):
        total += whole.numbers(np.zeros(len(numbers)), rng)
    return whole.total(total)


def honest_sum(
    whole: IntegerSum, noise_shares: NoiseShares, uploads: Mapping[int, np.ndarray]
) -> np.ndarray:
    """Adds what arrived, without the last ones, which belong to the server and which it subtracts.

    Args:
        whole: The sum of integers.
        noise_shares: Who shares the noise.
        uploads: What each client sent.

    Returns:
        The sum of the honest clients.
    """
    numbers = list(uploads.values())[: len(uploads) - noise_shares.colluders]
    return whole.total(np.sum(numbers, axis=0, dtype=whole.kind))


def room(bound: float, noise_shares: NoiseShares) -> SecureSumTerms:
    """Builds the terms of a secure sum for a test bed.

    Args:
        bound: Largest absolute value of a number.
        noise_shares: Who shares the noise.

    Returns:
        The terms.
    """
    return SecureSumTerms(1.0, bound, clients_for(noise_shares))
