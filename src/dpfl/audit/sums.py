"""The view of a server and its colluders on a secure sum: the sum over the fewest honest
clients.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpfl.client.task import SecureSumTerms
from dpfl.privacy.mechanisms.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noise_shares import NoiseShares

SPARE = 2
"""Clients beyond the survivors, who may be lost."""


def honest(shared: NoiseShares) -> int:
    """Counts the survivors that do not collude, independently of the code under audit.

    Args:
        shared: Who shares the noise.

    Returns:
        Their number.
    """
    return shared.survivors - shared.colluders


def clients_for(shared: NoiseShares | None, least: int = 1) -> int:
    """Chooses the number of clients of a test bed.

    Args:
        shared: Who shares the noise of a secure sum; None without one.
        least: Least number of clients.

    Returns:
        As many as the sum needs, some of which may be lost; never so many that two different
        lists of survivors could both be valid.
    """
    if shared is None:
        return least
    most = max(shared.survivors, 2 * shared.survivors - shared.colluders - 1)
    return max(least, min(shared.survivors + SPARE, most, 100))


def server_view(
    integer_sum: IntegerSum, shared: NoiseShares, vector: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Adds one client's vector to the noise of the other honest clients.

    Args:
        integer_sum: The sum of integers.
        shared: Who shares the noise.
        vector: The client's vector.
        rng: Source of the noise.

    Returns:
        The sum as the server sees it.
    """
    return beside(integer_sum, shared, integer_sum.numbers(vector, rng), rng)


def beside(
    integer_sum: IntegerSum, shared: NoiseShares, numbers: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Adds what one client sent to the noise of the other honest clients.

    Args:
        integer_sum: The sum of integers.
        shared: Who shares the noise.
        numbers: What the client sent.
        rng: Source of the noise.

    Returns:
        The sum as the server sees it.
    """
    total = numbers.copy()
    for _ in range(honest(shared) - 1):
        total += integer_sum.numbers(np.zeros(len(numbers)), rng)
    return integer_sum.total(total)


def honest_sum(
    integer_sum: IntegerSum, shared: NoiseShares, arrived: Mapping[int, np.ndarray]
) -> np.ndarray:
    """Adds what arrived, without the last ones, which belong to the server and which it subtracts.

    Args:
        integer_sum: The sum of integers.
        shared: Who shares the noise.
        arrived: What each client sent.

    Returns:
        The sum of the honest clients.
    """
    numbers = list(arrived.values())[: len(arrived) - shared.colluders]
    return integer_sum.total(np.sum(numbers, axis=0, dtype=integer_sum.kind))


def room(bound: float, shared: NoiseShares) -> SecureSumTerms:
    """Builds the terms of a secure sum for a test bed.

    Args:
        bound: Largest absolute value of a number.
        shared: Who shares the noise.

    Returns:
        The terms.
    """
    return SecureSumTerms(1.0, bound, clients_for(shared))
