"""What a server and its colluders see of a secure sum: the numbers of those who do not collude, as
few as may be, added up.
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
    """Survivors that do not collude; counted here, and not by the code that is audited."""
    return shared.survivors - shared.colluders


def clients_for(shared: NoiseShares | None, least: int = 1) -> int:
    """As many as a sum needs, some of whom may be lost; never so many that two lists of survivors
    could both stand.
    """
    if shared is None:
        return least
    most = max(shared.survivors, 2 * shared.survivors - shared.colluders - 1)
    return max(least, min(shared.survivors + SPARE, most, 100))


def seen(
    whole: IntegerSum, shared: NoiseShares, vector: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """One client's vector in the sum of the fewest honest clients, of whom the others have nothing
    but their noise.
    """
    return beside(whole, shared, whole.numbers(vector, rng), rng)


def beside(
    whole: IntegerSum, shared: NoiseShares, numbers: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The same from what the client sent."""
    total = numbers.copy()
    for _ in range(honest(shared) - 1):
        total += whole.numbers(np.zeros(len(numbers)), rng)
    return whole.total(total)


def left(whole: IntegerSum, shared: NoiseShares, arrived: Mapping[int, np.ndarray]) -> np.ndarray:
    """Of what arrived: the last ones are the server's, which it takes away."""
    sent = list(arrived.values())[: len(arrived) - shared.colluders]
    return whole.total(np.sum(sent, axis=0, dtype=whole.kind))


def room(bound: float, shared: NoiseShares) -> SecureSumTerms:
    return SecureSumTerms(1.0, bound, clients_for(shared))
