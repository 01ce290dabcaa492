"""A group whose members all live here, and a server that does what it should."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.secagg import MaskedSum, SumGroup, SumId, SumMember, SurvivorVotes, UnmaskingShares


@cache
def identity(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def group(clients: int, survivors: int, colluders: int = 0, run: str = "run") -> SumGroup:
    names = [f"hospital-{number:02d}" for number in range(clients)]
    return SumGroup(
        run,
        {name: identity(name).public_key().public_bytes_raw().hex() for name in names},
        survivors,
        colluders,
    )


def met(of: SumGroup) -> dict[str, SumMember]:
    members = {name: SumMember(of, name, identity(name)) for name in of.names}
    for member in members.values():
        member.receive_keys([other.advertisement for other in members.values()])
    return members


def at(members: dict[str, SumMember], round: int = 0, attempt: int = 0) -> SumId:
    return SumId(next(iter(members.values())).session, round, attempt)


def numbers(of: SumGroup, size: int = 50, bits: int = 32, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 2**bits, size, dtype=f"u{bits // 8}") for name in of.names}


def begun(
    of: SumGroup,
    members: dict[str, SumMember],
    values: dict[str, np.ndarray],
    here: SumId,
    silent: Collection[str] = (),
) -> MaskedSum:
    """Exchange 1, without those who are silent."""
    size, bits = len(next(iter(values.values()))), 8 * next(iter(values.values())).dtype.itemsize
    sum = MaskedSum(of, here, size, bits)
    for name in of.names:
        if name not in silent:
            sum.take(members[name].mask(here, values[name]))
    return sum


def summed(
    of: SumGroup, members: dict[str, SumMember], values: dict[str, np.ndarray], here: SumId,
    silent: Collection[str] = (), gone: Collection[str] = (), speechless: Collection[str] = (),
) -> np.ndarray:  # fmt: skip
    """`silent` members send nothing, `gone` ones nothing after their numbers, `speechless` ones
    nothing after their vote.
    """
    sum = begun(of, members, values, here, silent)
    answers = {
        name: members[name].agree(shown)
        for name, shown in sum.survivor_lists().items()
        if name not in gone
    }
    for answer in answers.values():
        sum.open(answer) if isinstance(answer, UnmaskingShares) else sum.vote(answer)
    if sum.missing:
        votes: SurvivorVotes = sum.votes()
        for name in answers:
            if name not in speechless:
                sum.open(members[name].open(votes))
    return sum.total()


def plain(values: dict[str, np.ndarray], names: Collection[str]) -> np.ndarray:
    first = next(iter(values.values()))
    return np.sum([values[name] for name in names], axis=0, dtype=first.dtype)
