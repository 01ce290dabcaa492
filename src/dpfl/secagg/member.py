"""A member's side: it masks, stands for one list of survivors a sum, and opens one half of each
mask at most.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpfl.secagg.group import SumGroup
from dpfl.secagg.keys import agree, card, present, session, verify_advertisement
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
    """The sum under way: this member's seeds (by the other of the pair; its own mask's under its
    own name), the shares that it holds by their owner, and the one list of survivors that it stands
    for.
    """

    at: SumId
    seeds: dict[str, bytes]
    shares: dict[str, list[bytes]] = field(default_factory=dict)
    survivors: tuple[str, ...] = ()


class SumMember:
    """Keys and seeds live in memory only: a member that is started again is another, and is missing
    until the next set-up.

    Whatever is asked in another order than card, meet, then mask, agree and open for each sum, is
    refused.
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
        self.card = card(group, name, identity, self._mask, self._envelope)
        self.session = ""
        self._last = (-1, -1)
        self._sum: _Open | None = None

    def meet(self, cards: Sequence[KeyAdvertisement]) -> None:
        """Set-up: the keys of all who are there, checked against the identities that this member's
        owner was given.
        """
        if self.session:
            raise MemberRefusal(
                "The keys of a session are agreed once; set up another with others.",
                RefusalCause.KEYS,
            )
        if self.card not in cards:
            raise MemberRefusal(
                "The keys that were shown do not hold this member's own; start the run again.",
                RefusalCause.KEYS,
            )
        group = present(self._group, cards)
        found = session(group, cards)
        others = [other for other in cards if other.name != self.name]
        self._pairs = {other.name: agree(self._mask, other.name, other.mask) for other in others}
        self._letters = {
            other.name: agree(self._envelope, other.name, other.envelope) for other in others
        }
        self._group, self.session = group, found

    @property
    def size(self) -> int:
        """How many sum together."""
        return len(self._group.names)

    def expect(self, at: SumId) -> None:
        """Refuses a sum that nothing will be masked for; asked before anything is computed or paid
        for it.
        """
        if not self.session or at.session != self.session:
            raise MemberRefusal(
                "This sum is of another run, or of members with other keys; nothing is masked for "
                "it.",
                RefusalCause.NO_KEYS,
            )
        if at.place <= self._last:
            raise MemberRefusal(
                f"Round {at.round}, attempt {at.attempt} is not later than the last; no mask is "
                "made twice."
            )

    def mask(self, at: SumId, numbers: Whole) -> MaskedInput:
        """Exchange 1: y_u = x_u + PRG(b_u) + sum_(v > u) PRG(s_uv) - sum_(v < u) PRG(s_uv), and
        shares of every seed.
        """
        bits = bits_of(numbers)
        self.expect(at)
        self._last, others = at.place, [name for name in self._group.names if name != self.name]
        seeds = {other: pair_seed(self._pairs[other], at, self.name, other) for other in others}
        seeds[self.name] = secrets.token_bytes(SEED)
        masked = numbers + mask(seeds[self.name], at, len(numbers), bits)
        for other in others:
            add_pair(masked, seeds[other], at, self.name, other)
        self._sum = _Open(at, seeds)
        envelopes = self._envelopes(self._sum)
        digests = {other: digest(seed, at, self.name, other) for other, seed in seeds.items()}
        return MaskedInput(at, self.name, masked, envelopes, digests)

    def _envelopes(self, open: _Open) -> dict[str, bytes]:
        """For each member a share of every seed of this one, in the order of names."""
        names = self._group.names
        split_up = [split(open.seeds[name], self._group.threshold, len(names)) for name in names]
        bundles = dict(zip(names, map(list, zip(*split_up, strict=True)), strict=True))
        open.shares[self.name] = bundles.pop(self.name)
        return {
            name: seal(self._letters[name], open.at, self.name, name, bundle)
            for name, bundle in bundles.items()
        }

    def agree(self, shown: SurvivorList) -> UnmaskingShares | SurvivorVote:
        """Exchange 2: the one list of survivors that it will stand for. Where nobody is missing, no
        mask of a pair is to be opened, so it opens the others at once; else it waits for the
        others' word.
        """
        open, names = self._under_way(shown.at), shown.survivors
        if open.survivors:
            raise MemberRefusal(
                "The survivors of this sum were shown before; there is one list of them.",
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
            envelope = shown.envelopes.get(name, b"")
            held = unseal(
                self._letters[name], open.at, name, self.name, envelope, len(self._group.names)
            )
            if (
                held is not None
            ):  # of a sender whose envelope does not open there is nothing to tell
                open.shares[name] = held
        if open.survivors == self._group.names:
            return self._opened(open)
        return SurvivorVote(
            open.at, self.name, self._identity.sign(ballot(open.at, open.survivors))
        )

    def open(self, votes: SurvivorVotes) -> UnmaskingShares:
        """Exchange 3, where somebody is missing: only once enough members stand for the very same
        list.
        """
        open = self._under_way(votes.at)
        if not open.survivors:
            raise MemberRefusal("No survivors were shown for this sum yet.", RefusalCause.SURVIVORS)
        content, identities = ballot(open.at, open.survivors), self._group.identities
        others = [name for name in open.survivors if name != self.name]
        agreeing = 1 + sum(
            verify_advertisement(identities[name], votes.signatures.get(name, b""), content)
            for name in others
        )
        if agreeing < self._group.threshold:
            raise MemberRefusal(
                f"{agreeing} members stand for these survivors, of {self._group.threshold} needed; "
                "nothing is opened.",
                RefusalCause.VOTES,
            )
        return self._opened(open)

    def _under_way(self, at: SumId) -> _Open:
        if self._sum is None or self._sum.at != at:
            raise MemberRefusal(
                "This sum is not under way here: it is of another run or round, or was opened "
                "before."
            )
        return self._sum

    def _opened(self, open: _Open) -> UnmaskingShares:
        """Of a survivor its own mask and its masks with the missing; never a missing one's own, nor
        that of two survivors.
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
            open.at, self.name, {name: open.seeds[name] for name in missing}, shares
        )


def ballot(at: SumId, survivors: Sequence[str]) -> bytes:
    return at.words("survivors", *survivors)
