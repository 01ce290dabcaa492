"""Exact laws of rounded normal numbers and of their sums, to 30 digits and more: whole numbers over
2^160, by mpmath.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import mpmath

BITS = 160
ONE = 1 << BITS
REACH = 12
"""Deviations beyond which the law of a share is cut: 4e-33 lies there."""
_SLOT = 46
"""Bytes for a coefficient of a product of two laws."""

Law = tuple[int, list[int]]
"""The least number that has a chance, and the chances from there on, times 2^160."""


def fixed(value: mpmath.mpf) -> int:
    return int(mpmath.nint(mpmath.ldexp(value, BITS)))


@lru_cache(maxsize=64)
def _rounded(x: str, s: str) -> Law:
    with mpmath.workprec(BITS + 40):
        place, spread = mpmath.mpf(x), mpmath.mpf(s)
        low, high = (
            int(mpmath.floor(place - REACH * spread)),
            int(mpmath.ceil(place + REACH * spread)),
        )
        edges = [
            mpmath.ncdf((k - mpmath.mpf(1) / 2 - place) / spread) for k in range(low, high + 2)
        ]
        return low, [fixed(after - before) for before, after in pairwise(edges)]


def rounded(x: mpmath.mpf, s: mpmath.mpf) -> Law:
    """The law of round(x + N(0, s^2))."""
    with mpmath.workprec(BITS + 40):
        return _rounded(mpmath.nstr(mpmath.mpf(x), 60), mpmath.nstr(mpmath.mpf(s), 60))


def convolved(one: Law, other: Law) -> Law:
    """The law of a sum of independent numbers, by one product of two long whole numbers."""
    packed = [
        int.from_bytes(b"".join(p.to_bytes(_SLOT, "little") for p in law[1]), "little")
        for law in (one, other)
    ]
    length = len(one[1]) + len(other[1]) - 1
    product = (packed[0] * packed[1]).to_bytes(_SLOT * (length + 1), "little")
    slots = (product[_SLOT * i : _SLOT * (i + 1)] for i in range(length))
    return one[0] + other[0], [int.from_bytes(slot, "little") >> BITS for slot in slots]


def of_sum(places: list[mpmath.mpf], s: mpmath.mpf) -> Law:
    """The law of sum_i round(x_i + N(0, s^2))."""
    law = (0, [ONE])
    for place in places:
        law = convolved(law, rounded(place, s))
    return law


def aligned(one: Law, other: Law) -> list[tuple[int, int]]:
    """The chances of both at every number that either has."""
    low, high = min(one[0], other[0]), max(one[0] + len(one[1]), other[0] + len(other[1]))

    def at(law: Law, k: int) -> int:
        return law[1][k - law[0]] if 0 <= k - law[0] < len(law[1]) else 0

    return [(at(one, k), at(other, k)) for k in range(low, high)]


def delta(pairs: list[tuple[int, int]], epsilon: float) -> mpmath.mpf:
    """sum max(p - e^epsilon q, 0): the least delta for this epsilon, in this direction."""
    with mpmath.workprec(BITS + 40):
        factor = fixed(mpmath.exp(mpmath.mpf(epsilon)))
        return mpmath.ldexp(sum(max((p << BITS) - factor * q, 0) for p, q in pairs), -2 * BITS)


def larger_delta(pairs: list[tuple[int, int]], epsilon: float) -> mpmath.mpf:
    """In the worse direction."""
    return max(delta(pairs, epsilon), delta([(q, p) for p, q in pairs], epsilon))


def gaussian_delta(mu: mpmath.mpf, epsilon: float) -> mpmath.mpf:
    """Of the Gaussian mechanism whose sensitivity is mu deviations (Balle and Wang 2018)."""
    with mpmath.workprec(BITS + 40):
        mu, eps = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(-eps / mu + mu / 2) - mpmath.exp(eps) * mpmath.ncdf(-eps / mu - mu / 2)
