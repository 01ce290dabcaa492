"""The server's side of one sum. The server is trusted with nothing: members decide what it may
learn.

A `MaskedSum` takes the masked numbers of the members (`take`), shows the members who survived
(`survivor_lists`), collects their votes and shares (`vote`, `open`), and removes the masks from the
sum (`total`). It never sees the numbers of one member.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice

import numpy as np

from dpfl.deprecation import keep_old_names
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
"""How many sets of shares are tried for a seed: some shares may be those of members who lie."""


@keep_old_names(shown="survivor_lists")
class MaskedSum:
    """One sum at the server.

    The steps are `take` for each member, `survivor_lists`, then, if somebody is `missing`, `vote`
    for each survivor and `votes`, then `open` for each survivor, and `total`.
    """

    def __init__(self, group: SumGroup, sum_id: SumId, size: int, bits: int = 32) -> None:
        self._group, self._at, self._size, self._bits = group, sum_id, size, bits
        self._inputs: dict[str, MaskedInput] = {}
        self._votes: dict[str, bytes] = {}
        self._shares: dict[str, UnmaskingShares] = {}
        self.survivors: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """The members who are not among the survivors."""
        return tuple(name for name in self._group.names if name not in self.survivors)

    def take(self, masked_input: MaskedInput) -> None:
        """Accepts the masked numbers of a member (exchange 1).

        Args:
            masked_input: What the member sent.

        Raises:
            MemberRefusal: It cannot be used; the member counts as missing.
        """
        self._expect(masked_input.sum_id, masked_input.sender)
        if self.survivors:
            raise MemberRefusal(
                f"The numbers of {masked_input.sender} arrived after the survivors were "
                "announced, and are not used."
            )
        names = set(self._group.names)
        if len(masked_input.numbers) != self._size or bits_of(masked_input.numbers) != self._bits:
            raise MemberRefusal(
                f"The numbers of {masked_input.sender} are not {self._size} of {self._bits} bits, "
                "and are not used."
            )
        if (
            set(masked_input.envelopes) != names - {masked_input.sender}
            or set(masked_input.digests) != names
        ):
            raise MemberRefusal(
                f"{masked_input.sender} did not send an envelope to every other member, so its "
                "numbers are not used."
            )
        self._inputs.setdefault(masked_input.sender, masked_input)

    def survivor_lists(self) -> dict[str, SurvivorList]:
        """Fixes the survivors (exchange 2).

        Returns:
            For each survivor, the list and the envelopes for it.

        Raises:
            RepeatSum: The survivors are too few.
        """
        if len(self._inputs) < self._group.survivors:
            raise RepeatSum(
                f"Only {len(self._inputs)} clients sent their numbers, of {self._group.survivors} "
                "needed: not opened."
            )
        self.survivors = tuple(sorted(self._inputs))
        return {
            name: SurvivorList(self._at, self.survivors, self._for(name)) for name in self.survivors
        }

    def _for(self, receiver: str) -> dict[str, bytes]:
        return {
            name: self._inputs[name].envelopes[receiver]
            for name in self.survivors
            if name != receiver
        }

    def vote(self, vote: SurvivorVote) -> None:
        """Accepts the vote of a survivor.

        Args:
            vote: Its signature of the list.

        Raises:
            MemberRefusal: It is no signature of this list by this survivor.
        """
        self._expect(vote.sum_id, vote.sender)
        if vote.sender not in self.survivors or not verify_advertisement(
            self._group.identities[vote.sender], vote.signature, ballot(self._at, self.survivors)
        ):
            raise MemberRefusal(
                f"{vote.sender} did not sign these survivors; its answer is not used."
            )
        self._votes[vote.sender] = vote.signature

    def votes(self) -> SurvivorVotes:
        """Collects the votes for each survivor (exchange 3).

        Returns:
            All votes.

        Raises:
            RepeatSum: They are fewer than h.
        """
        if len(self._votes) < self._group.threshold:
            raise RepeatSum(
                f"Only {len(self._votes)} clients agreed on the survivors, of "
                f"{self._group.threshold}: not opened."
            )
        return SurvivorVotes(self._at, dict(self._votes))

    def open(self, shares: UnmaskingShares) -> None:
        """Accepts what a survivor reveals.

        Args:
            shares: Its seeds and shares.

        Raises:
            MemberRefusal: It is of another sum, or of a stranger.
        """
        self._expect(shares.sum_id, shares.sender)
        self._shares.setdefault(shares.sender, shares)

    def total(self) -> Whole:
        """Unmasks the sum of the survivors' numbers.

        Returns:
            The sum of x_u over the survivors u.

        Raises:
            RepeatSum: A mask that does not cancel is not known.
        """
        if not self.survivors or len(self._shares) < self._group.threshold:
            raise RepeatSum(
                f"Only {len(self._shares)} clients opened their shares, of "
                f"{self._group.threshold}: not opened."
            )
        total = np.zeros(self._size, f"<u{self._bits // 8}")
        for name in self.survivors:
            total += self._inputs[name].numbers
            total -= mask(self._seed(name, name), self._at, self._size, self._bits)
            for other in self.missing:
                add_pair(total, self._seed(name, other), self._at, name, other, times=-1)
        return total

    def _seed(self, owner: str, other: str) -> bytes:
        """Finds a seed, from its owner or from shares, and checks it by the digest that came with
        the owner's numbers.
        """
        seed_digest = self._inputs[owner].digests[other]
        for seed in self._candidates(owner, other):
            if seed is not None and digest(seed, self._at, owner, other) == seed_digest:
                return seed
        raise RepeatSum(
            f"A mask of {owner} cannot be put together: it, or some who hold its shares, did not "
            "tell the truth."
        )

    def _candidates(self, owner: str, other: str) -> Iterator[bytes | None]:
        if owner != other and owner in self._shares:
            yield self._shares[owner].seeds.get(other)
        numbers, least = self._group.number, self._group.threshold
        all_shares = {
            numbers[name]: answer.shares.get((owner, other), b"")
            for name, answer in self._shares.items()
        }
        shares = {number: share for number, share in all_shares.items() if len(share) == SHARE}
        omissions = (
            some for count in range(len(shares) - least + 1) for some in combinations(shares, count)
        )
        for omission in islice(omissions, TRIES):
            chosen_numbers = [number for number in shares if number not in omission][:least]
            yield combine({number: shares[number] for number in chosen_numbers})

    def _expect(self, sum_id: SumId, sender: str) -> None:
        if sum_id != self._at or sender not in self._group.identities:
            raise MemberRefusal(
                f"This answer belongs to another sum, or {sender!r} is not a member of it."
            )
