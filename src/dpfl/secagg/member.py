"""A member's side of the protocol: it masks its numbers, supports one list of survivors per sum,
and reveals at most one half of each member's masks.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpfl.deprecation import keep_old_names
from dpfl.secagg.group import SumGroup
from dpfl.secagg.keys import advertise_keys, agree, present, session, verify_advertisement
from dpfl.secagg.masks import SEED, Whole, add_pair, bits_of, digest, mask, pair_seed
from dpfl.secagg.messages import (
    KeyAdvertisement,
    MaskedInput,
    MemberRefusal,
    RefusalCause,
    SumId,
    SurvivorList,
    SurvivorVote,
    SurvivorVotes,
    UnmaskingShares,
)
from dpfl.secagg.shares import seal, split, unseal


@dataclass
class _Open:
    """The sum under way."""

    sum_id: SumId
    seeds: dict[str, bytes]
    """This member's seeds, by the other member of the pair; its own mask's under its own name."""
    shares: dict[str, list[bytes]] = field(default_factory=dict)
    """The shares that it has, by their owner."""
    survivors: tuple[str, ...] = ()
    """The one list of survivors that it supports."""


@keep_old_names(card="advertisement", meet="receive_keys")
class SumMember:
    """A member.

    The steps are `advertisement` and `receive_keys` once, then `mask`, `agree` and, if somebody is
    missing, `open` for each sum. Anything that is asked in another order is refused. Keys and seeds
    are in memory only: a member that is started again is missing until the next set-up.
    """

    def __init__(self, group: SumGroup, name: str, identity: Ed25519PrivateKey) -> None:
        if group.identities.get(name) != identity.public_key().public_bytes_raw().hex():
            raise MemberRefusal(
                f"{name} is not a member of this sum under its own key; ask whoever keeps the list "
                "of members.",
                RefusalCause.KEYS,
            )
        self._group, self.name, self._identity = group, name, identity
        self._mask, self._envelope = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        self.advertisement = advertise_keys(group, name, identity, self._mask, self._envelope)
        self.session = ""
        self._last = (-1, -1)
        self._sum: _Open | None = None

    def receive_keys(self, advertisements: Sequence[KeyAdvertisement]) -> None:
        """Checks the keys of all members, and agrees on a secret with each of them (set-up).

        Args:
            advertisements: Their keys, this member's own among them.

        Raises:
            MemberRefusal: The keys are not those of members whose identities this member's owner
                was given.
        """
        if self.session:
            raise MemberRefusal(
                "Keys are agreed once per session; start another session for other keys.",
                RefusalCause.KEYS,
            )
        if self.advertisement not in advertisements:
            raise MemberRefusal(
                "The advertised keys do not include this member's key; start the run again.",
                RefusalCause.KEYS,
            )
        group = present(self._group, advertisements)
        digest_of_session = session(group, advertisements)
        others = [other for other in advertisements if other.name != self.name]
        self._pairs = {other.name: agree(self._mask, other.name, other.mask) for other in others}
        self._envelope_secrets = {
            other.name: agree(self._envelope, other.name, other.envelope) for other in others
        }
        self._group, self.session = group, digest_of_session

    @property
    def size(self) -> int:
        """How many members sum together."""
        return len(self._group.names)

    def expect(self, sum_id: SumId) -> None:
        """Refuses a sum for which nothing would be masked, before anything is computed or paid.

        Args:
            sum_id: The sum.

        Raises:
            MemberRefusal: The sum is of another session, or is not later than the last one.
        """
        if not self.session or sum_id.session != self.session:
            raise MemberRefusal(
                "This sum belongs to another run or to members with other keys; nothing is masked "
                "for it.",
                RefusalCause.NO_KEYS,
            )
        if sum_id.place <= self._last:
            raise MemberRefusal(
                f"Round {sum_id.round}, attempt {sum_id.attempt} is not later than the last; no "
                "mask is made twice."
            )

    def mask(self, sum_id: SumId, numbers: Whole) -> MaskedInput:
        """Masks the numbers, and seals shares of every seed for the other members (exchange 1).

            y_u = x_u + PRG(b_u) + sum_(v > u) PRG(s_uv) - sum_(v < u) PRG(s_uv)

        Args:
            sum_id: The sum.
            numbers: x_u, unsigned integers of 32 or 64 bits.

        Returns:
            y_u, the envelopes and the digests of the seeds.

        Raises:
            MemberRefusal: The sum is of another session, or is not later than the last one.
        """
        bits = bits_of(numbers)
        self.expect(sum_id)
        self._last, others = sum_id.place, [name for name in self._group.names if name != self.name]
        seeds = {other: pair_seed(self._pairs[other], sum_id, self.name, other) for other in others}
        seeds[self.name] = secrets.token_bytes(SEED)
        masked_numbers = numbers + mask(seeds[self.name], sum_id, len(numbers), bits)
        for other in others:
            add_pair(masked_numbers, seeds[other], sum_id, self.name, other)
        self._sum = _Open(sum_id, seeds)
        envelopes = self._envelopes(self._sum)
        digests = {other: digest(seed, sum_id, self.name, other) for other, seed in seeds.items()}
        return MaskedInput(sum_id, self.name, masked_numbers, envelopes, digests)

    def _envelopes(self, open: _Open) -> dict[str, bytes]:
        """Seals for each other member a share of every seed of this one, in the order of names."""
        names = self._group.names
        split_up = [split(open.seeds[name], self._group.threshold, len(names)) for name in names]
        bundles = dict(zip(names, map(list, zip(*split_up, strict=True)), strict=True))
        open.shares[self.name] = bundles.pop(self.name)
        return {
            name: seal(self._envelope_secrets[name], open.sum_id, self.name, name, bundle)
            for name, bundle in bundles.items()
        }

    def agree(self, survivor_list: SurvivorList) -> UnmaskingShares | SurvivorVote:
        """Supports one list of survivors (exchange 2).

        If nobody is missing, no pair seed has to be revealed, so shares of all own seeds are sent
        at once. Otherwise the member signs the list and waits for the other members' votes.

        Args:
            survivor_list: The survivors, and what they sealed for this member.

        Returns:
            The shares, or the vote.

        Raises:
            MemberRefusal: Another list was shown before, or the list is too short, has strangers on
                it, or does not have this member on it.
        """
        open, names = self._under_way(survivor_list.sum_id), survivor_list.survivors
        if open.survivors:
            raise MemberRefusal(
                "The survivors of this sum are already announced; a sum has one list of them.",
                RefusalCause.OTHER_SURVIVORS,
            )
        if len(set(names)) != len(names) or not set(names) <= set(self._group.names):
            raise MemberRefusal(
                "Survivors must be members of this sum, each once.", RefusalCause.SURVIVORS
            )
        if self.name not in names:
            raise MemberRefusal(
                "This member sent its numbers and is not among the survivors; it opens nothing.",
                RefusalCause.SURVIVORS,
            )
        if len(names) < self._group.survivors:
            raise MemberRefusal(
                f"{len(names)} survivors are fewer than {self._group.survivors}; nothing is "
                "opened.",
                RefusalCause.TOO_FEW,
            )
        open.survivors = tuple(sorted(names))
        for name in set(names) - {self.name}:
            envelope = survivor_list.envelopes.get(name, b"")
            shares = unseal(
                self._envelope_secrets[name],
                open.sum_id,
                name,
                self.name,
                envelope,
                len(self._group.names),
            )
            if shares is not None:  # an envelope that does not open leaves nothing to reveal
                open.shares[name] = shares
        if open.survivors == self._group.names:
            return self._reveal_shares(open)
        return SurvivorVote(
            open.sum_id, self.name, self._identity.sign(ballot(open.sum_id, open.survivors))
        )

    def open(self, votes: SurvivorVotes) -> UnmaskingShares:
        """Reveals shares, if enough members support the very same list (exchange 3).

        Args:
            votes: The signatures of the other survivors.

        Returns:
            The member's own seeds with the missing, and its shares.

        Raises:
            MemberRefusal: Fewer than h members support the list.
        """
        open = self._under_way(votes.sum_id)
        if not open.survivors:
            raise MemberRefusal(
                "No survivors have been announced for this sum yet.", RefusalCause.SURVIVORS
            )
        content, identities = ballot(open.sum_id, open.survivors), self._group.identities
        others = [name for name in open.survivors if name != self.name]
        agreeing = 1 + sum(
            verify_advertisement(identities[name], votes.signatures.get(name, b""), content)
            for name in others
        )
        if agreeing < self._group.threshold:
            raise MemberRefusal(
                f"{agreeing} members agree on these survivors, of {self._group.threshold} needed; "
                "nothing is opened.",
                RefusalCause.VOTES,
            )
        return self._reveal_shares(open)

    def _under_way(self, sum_id: SumId) -> _Open:
        if self._sum is None or self._sum.sum_id != sum_id:
            raise MemberRefusal(
                "This sum is not open here: it belongs to another run or round, or was already "
                "opened."
            )
        return self._sum

    def _reveal_shares(self, open: _Open) -> UnmaskingShares:
        """Reveals, of each survivor, shares of its own seed and of its seeds with the missing;
        never the own seed of a missing member, and never the seed of two survivors.
        """
        self._sum = None
        missing = [name for name in self._group.names if name not in open.survivors]
        position = self._group.number
        shares = {
            (owner, other): open.shares[owner][position[other] - 1]
            for owner in open.survivors
            if owner in open.shares
            for other in (owner, *missing)
        }
        return UnmaskingShares(
            open.sum_id, self.name, {name: open.seeds[name] for name in missing}, shares
        )


def ballot(sum_id: SumId, survivors: Sequence[str]) -> bytes:
    """Writes what a vote signs.

    Args:
        sum_id: The sum.
        survivors: The survivors in alphabetical order.

    Returns:
        The bytes.
    """
    return sum_id.words("survivors", *survivors)
