"""The server's side of one sum. It is trusted with nothing: what it may learn is decided by the
members.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice

import numpy as np

from dpfl.secagg.group import SumGroup
from dpfl.secagg.keys import verify_advertisement
from dpfl.secagg.masks import Whole, add_pair, bits_of, digest, mask
from dpfl.secagg.member import ballot
from dpfl.secagg.messages import (
    MaskedInput,
    MemberRefusal,
    RepeatSum,
    SumId,
    SurvivorList,
    SurvivorVote,
    SurvivorVotes,
    UnmaskingShares,
)
from dpfl.secagg.shares import SHARE, combine

TRIES = 1000
"""Sets of shares that are tried for a seed before it is given up: some may be of members who
lie.
"""


class MaskedSum:
    """Take masked numbers, show the survivors, count votes where somebody is missing, take what
    members open, and sum.
    """

    def __init__(self, group: SumGroup, at: SumId, size: int, bits: int = 32) -> None:
        self._group, self._at, self._size, self._bits = group, at, size, bits
        self._masked: dict[str, MaskedInput] = {}
        self._votes: dict[str, bytes] = {}
        self._opened: dict[str, UnmaskingShares] = {}
        self.survivors: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in self._group.names if name not in self.survivors)

    def take(self, masked: MaskedInput) -> None:
        """Exchange 1; whoever sends what cannot be used counts as missing."""
        self._expect(masked.at, masked.sender)
        if self.survivors:
            raise MemberRefusal(
                f"The numbers of {masked.sender} came after the survivors were shown, and are not "
                "used."
            )
        names = set(self._group.names)
        if len(masked.numbers) != self._size or bits_of(masked.numbers) != self._bits:
            raise MemberRefusal(
                f"The numbers of {masked.sender} are not {self._size} of {self._bits} bits, and "
                "are not used."
            )
        if set(masked.envelopes) != names - {masked.sender} or set(masked.digests) != names:
            raise MemberRefusal(
                f"{masked.sender} did not send an envelope to every other member, so its numbers "
                "are not used."
            )
        self._masked.setdefault(masked.sender, masked)

    def shown(self) -> dict[str, SurvivorList]:
        """Exchange 2: for each survivor who they are, and the envelopes for it."""
        if len(self._masked) < self._group.survivors:
            raise RepeatSum(
                f"Only {len(self._masked)} clients sent their numbers, of {self._group.survivors} "
                "needed: not opened."
            )
        self.survivors = tuple(sorted(self._masked))
        return {
            name: SurvivorList(self._at, self.survivors, self._for(name)) for name in self.survivors
        }

    def _for(self, receiver: str) -> dict[str, bytes]:
        return {
            name: self._masked[name].envelopes[receiver]
            for name in self.survivors
            if name != receiver
        }

    def vote(self, vote: SurvivorVote) -> None:
        self._expect(vote.at, vote.sender)
        if vote.sender not in self.survivors or not verify_advertisement(
            self._group.identities[vote.sender], vote.signature, ballot(self._at, self.survivors)
        ):
            raise MemberRefusal(
                f"{vote.sender} did not sign these survivors; its answer is not used."
            )
        self._votes[vote.sender] = vote.signature

    def votes(self) -> SurvivorVotes:
        """Exchange 3, to each survivor."""
        if len(self._votes) < self._group.threshold:
            raise RepeatSum(
                f"Only {len(self._votes)} clients agreed on the survivors, of "
                f"{self._group.threshold}: not opened."
            )
        return SurvivorVotes(self._at, dict(self._votes))

    def open(self, opened: UnmaskingShares) -> None:
        self._expect(opened.at, opened.sender)
        self._opened.setdefault(opened.sender, opened)

    def total(self) -> Whole:
        """The sum of the survivors' numbers, once every mask that does not cancel is known."""
        if not self.survivors or len(self._opened) < self._group.threshold:
            raise RepeatSum(
                f"Only {len(self._opened)} clients opened their shares, of "
                f"{self._group.threshold}: not opened."
            )
        total = np.zeros(self._size, f"<u{self._bits // 8}")
        for name in self.survivors:
            total += self._masked[name].numbers
            total -= mask(self._seed(name, name), self._at, self._size, self._bits)
            for other in self.missing:
                add_pair(total, self._seed(name, other), self._at, name, other, times=-1)
        return total

    def _seed(self, owner: str, other: str) -> bytes:
        """As the owner says itself, or from shares; known by the digest that came with the owner's
        numbers.
        """
        wanted = self._masked[owner].digests[other]
        for seed in self._candidates(owner, other):
            if seed is not None and digest(seed, self._at, owner, other) == wanted:
                return seed
        raise RepeatSum(
            f"A mask of {owner} cannot be put together: it, or some who hold its shares, did not "
            "tell the truth."
        )

    def _candidates(self, owner: str, other: str) -> Iterator[bytes | None]:
        if owner != other and owner in self._opened:
            yield self._opened[owner].seeds.get(other)
        numbers, least = self._group.number, self._group.threshold
        said = {
            numbers[name]: opened.shares.get((owner, other), b"")
            for name, opened in self._opened.items()
        }
        shares = {number: share for number, share in said.items() if len(share) == SHARE}
        left_out = (
            some for count in range(len(shares) - least + 1) for some in combinations(shares, count)
        )
        for some in islice(left_out, TRIES):
            yield combine(
                {number: shares[number] for number in [n for n in shares if n not in some][:least]}
            )

    def _expect(self, at: SumId, sender: str) -> None:
        if at != self._at or sender not in self._group.identities:
            raise MemberRefusal(f"This answer is of another sum, or {sender!r} is no member of it.")
