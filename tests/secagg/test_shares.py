"""Shares against the library's own interpolation, and what too few of them say: nothing."""

from __future__ import annotations

import secrets
from itertools import combinations

import shamirs

from dpfl.secagg.messages import SumId
from dpfl.secagg.shares import PRIME, SHARE, _at_zero, combine, seal, split, unseal


def test_any_of_the_threshold_give_the_seed_as_the_library_has_it():
    seed = secrets.token_bytes(16)
    shares = dict(enumerate(split(seed, 3, 6), start=1))
    for members in combinations(shares, 3):
        said = {member: shares[member] for member in members}
        theirs = shamirs.interpolate(
            [shamirs.share(m, int.from_bytes(share), PRIME) for m, share in said.items()]
        )
        assert combine(said) == seed == theirs.to_bytes(16)


def test_fewer_than_the_threshold_fit_every_seed():
    """With two of three shares known, for any seed there is exactly one third share that gives
    it.
    """
    shares = dict(enumerate(split(secrets.token_bytes(16), 3, 6), start=1))
    known, third = (2, 5), 6
    weights = dict(zip((*known, third), _at_zero((*known, third)), strict=True))
    for wanted in (bytes(16), b"\xff" * 16, secrets.token_bytes(16)):
        rest = int.from_bytes(wanted) - sum(weights[m] * int.from_bytes(shares[m]) for m in known)
        needed = rest * pow(weights[third], -1, PRIME) % PRIME
        assert combine({**{m: shares[m] for m in known}, third: needed.to_bytes(SHARE)}) == wanted


def test_shares_of_no_seed_are_not_one():
    assert combine({1: PRIME.to_bytes(SHARE), 2: (PRIME - 1).to_bytes(SHARE)}) in (
        None,
        bytes(15) + b"\x01",
    )
    assert combine({1: (PRIME - 1).to_bytes(SHARE), 2: (PRIME - 1).to_bytes(SHARE)}) is None


def test_an_envelope_opens_for_its_receiver_in_its_sum_only():
    key, here, shares = (
        secrets.token_bytes(32),
        SumId("session", 3, 1),
        [bytes([n]) * SHARE for n in range(3)],
    )
    envelope = seal(key, here, "a", "b", shares)
    assert unseal(key, here, "a", "b", envelope, 3) == shares
    for wrong in (("b", "a"), ("a", "c")):
        assert unseal(key, here, *wrong, envelope, 3) is None
    for other in (SumId("session", 3, 2), SumId("session", 4, 1), SumId("other", 3, 1)):
        assert unseal(key, other, "a", "b", envelope, 3) is None
    assert unseal(key, here, "a", "b", envelope, 4) is None
    assert unseal(key, here, "a", "b", b"", 3) is None
