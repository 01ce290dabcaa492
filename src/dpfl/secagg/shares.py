"""Shamir's shares of a seed, and the envelopes that carry them past the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import shamirs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpfl.secagg.masks import DIGEST, SEED, derive
from dpfl.secagg.messages import SumId

PRIME = 2**128 + 51
"""The least prime that every seed of 128 bits lies below."""

SHARE = 17
"""Bytes of a number below it."""


def split(seed: bytes, threshold: int, members: int) -> list[bytes]:
    """A share for each of the members 1, 2, ...; fewer than `threshold` of them fit every seed
    equally well.
    """
    shares = shamirs.shares(
        int.from_bytes(seed), quantity=members, modulus=PRIME, threshold=threshold
    )
    return [int(share).to_bytes(SHARE) for share in shares]


def combine(shares: Mapping[int, bytes]) -> bytes | None:
    """The seed of as many shares as the threshold, by member; None where they are not shares of one
    seed, as far as that shows.

    The library's own takes 0.35 s for 51 shares; all seeds of a round have the same members, whose
    weights are found once.
    """
    members = tuple(sorted(shares))
    value = (
        sum(w * int.from_bytes(shares[m]) for m, w in zip(members, _at_zero(members), strict=True))
        % PRIME
    )
    return value.to_bytes(SEED) if value < 2 ** (8 * SEED) else None


@lru_cache(maxsize=256)
def _at_zero(members: Sequence[int]) -> tuple[int, ...]:
    """Lagrange's weights for the value of a polynomial at 0, from its values at the members."""
    weights = []
    for m in members:
        above = below = 1
        for other in members:
            if other != m:
                above, below = above * other % PRIME, below * (other - m) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)


def seal(agreed: bytes, at: SumId, sender: str, receiver: str, shares: Sequence[bytes]) -> bytes:
    """The key is for this envelope alone (a member makes one for each receiver and sum), so the
    nonce need not change.
    """
    return _cipher(agreed, at, sender, receiver).encrypt(bytes(12), b"".join(shares), None)


def unseal(
    agreed: bytes, at: SumId, sender: str, receiver: str, envelope: bytes, count: int
) -> list[bytes] | None:
    """None where it was not made by this sender for this receiver and this sum."""
    try:
        text = _cipher(agreed, at, sender, receiver).decrypt(bytes(12), envelope, None)
    except (InvalidTag, ValueError):
        return None
    return (
        [text[i : i + SHARE] for i in range(0, len(text), SHARE)]
        if len(text) == count * SHARE
        else None
    )


def _cipher(agreed: bytes, at: SumId, sender: str, receiver: str) -> AESGCM:
    return AESGCM(derive(agreed, at.words("envelope", sender, receiver), 32))


def added_bytes(members: int) -> int:
    """To and from one member in a sum where nobody is missing: envelopes both ways, a digest a
    seed, a share of every mask.
    """
    return 2 * (members - 1) * envelope_bytes(members) + members * (DIGEST + SHARE)


def envelope_bytes(members: int) -> int:
    """A share of every seed of its sender, and the tag."""
    return members * SHARE + 16
