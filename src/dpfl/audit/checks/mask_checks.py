"""Plays the protocol of a secure sum with real members: what does a server learn from their
messages, and do they open too much?

All numbers are 0, so the members send masks and nothing else. These must be fresh in every round,
at every place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.audit.checks.randomness_checks import TOO_FAR, RandomnessCheck, squares_score
from dpfl.audit.sums import clients_for
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.secagg import MaskedSum, MemberRefusal, SumGroup, SumId, SumMember, UnmaskingShares
from dpfl.secagg.messages import MaskedInput
from dpfl.secagg.shares import combine

SIZE = 4096
BY_CHANCE = 3
"""How many numbers of 32 bits may by chance be what they were, of some hundred thousand. One such
number occurs once in 10^4 audits, four never.
"""


class MaskedExchange:
    """Members that have met, in one process."""

    def __init__(self, noise_shares: NoiseShares) -> None:
        keys = {
            f"member-{number:03d}": Ed25519PrivateKey.generate()
            for number in range(clients_for(noise_shares, 3))
        }
        identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
        self.group = SumGroup("audit", identities, noise_shares.survivors, noise_shares.colluders)
        self.members = {name: SumMember(self.group, name, key) for name, key in keys.items()}
        for member in self.members.values():
            member.receive_keys([other.advertisement for other in self.members.values()])

    def begin(
        self, round: int, absent: int, numbers: np.ndarray
    ) -> tuple[MaskedSum, list[MaskedInput]]:
        """Runs exchange 1 without the last members.

        Args:
            round: Number of the round.
            absent: Number of members that send nothing.
            numbers: What each member adds.

        Returns:
            The server's sum, and what the members sent.
        """
        at = SumId(next(iter(self.members.values())).session, round)
        sum = MaskedSum(self.group, at, len(numbers))
        inputs = [
            member.mask(at, numbers)
            for member in list(self.members.values())[: len(self.members) - absent]
        ]
        for masked_input in inputs:
            sum.take(masked_input)
        return sum, inputs

    def end(self, sum: MaskedSum) -> tuple[np.ndarray, list[UnmaskingShares]]:
        """Ends a sum.

        Args:
            sum: The server's sum.

        Returns:
            The total, and the shares that members revealed for it.
        """
        answers: list[UnmaskingShares] = []
        for name, survivors in sum.survivor_lists().items():
            answer = self.members[name].agree(survivors)
            if isinstance(answer, UnmaskingShares):
                answers.append(answer)
            else:
                sum.vote(answer)
        if sum.missing:
            answers = [self.members[name].open(sum.votes()) for name in sum.survivors]
        for answer in answers:
            sum.open(answer)
        return sum.total(), answers

    def own_seeds(self, answers: list[UnmaskingShares], fewer: int = 0) -> list[bytes | None]:
        """Reconstructs the seeds of the survivors' own masks.

        Args:
            answers: Shares that members revealed.
            fewer: Number of shares below the threshold to use.

        Returns:
            The seed of each survivor; None where the shares give none.
        """
        number, count = self.group.number, self.group.threshold - fewer
        shares_of = [
            {number[answer.sender]: answer.shares[owner.sender, owner.sender] for answer in answers}
            for owner in answers
        ]
        return [combine(dict(list(shares.items())[:count])) for shares in shares_of]


def masks(noise_shares: NoiseShares) -> RandomnessCheck:
    """Tests the masks of a secure sum.

    Args:
        noise_shares: Who shares the noise.

    Returns:
        The check.
    """
    meeting = MaskedExchange(noise_shares)
    missing = min(1, len(meeting.members) - noise_shares.survivors)
    exchanges = [meeting.begin(round, missing, np.zeros(SIZE, np.uint32)) for round in (0,)]
    ends = [meeting.end(exchanges[0][0])]
    exchanges.append(meeting.begin(1, missing, np.zeros(SIZE, np.uint32)))
    ends.append(meeting.end(exchanges[1][0]))
    faults = [
        *_uniform(*(inputs for _, inputs in exchanges)),
        *_opening_faults(ends),
        *_own(meeting, ends),
        *_exact(meeting, missing),
    ]
    faults += _below(noise_shares)
    summary = (
        f"2 rounds of {len(exchanges[0][1])} members, {SIZE} numbers each: masked at every place, "
        "by masks of no other round; "
    )
    return RandomnessCheck(
        f"{summary}the sum of those who are left, and none of fewer than {noise_shares.survivors}",
        tuple(faults),
    )


def _uniform(first: list[MaskedInput], second: list[MaskedInput]) -> Iterator[str]:
    """Checks that masked zeros, and the difference of two rounds, look uniform: next to none of
    them is 0 at any place.
    """
    for what, numbers in (
        (
            "numbers are sent as they are",
            np.stack([masked_input.numbers for masked_input in (*first, *second)]),
        ),
        (
            "masks come again in the next round",
            np.stack([b.numbers - a.numbers for a, b in zip(first, second, strict=True)]),
        ),
    ):
        bare = int((numbers == 0).sum())
        if bare > BY_CHANCE:
            yield f"{what}: {bare} of {numbers.size}"
        counts = np.bincount(np.ascontiguousarray(numbers).view(np.uint8).ravel(), minlength=256)
        score = squares_score(float(np.square(counts - counts.mean()).sum() / counts.mean()), 255)
        if abs(score) > TOO_FAR:
            yield f"masked numbers are not uniform ({score:+.0f} deviations)"


def _opening_faults(ends: list[tuple[np.ndarray, list[UnmaskingShares]]]) -> Iterator[str]:
    if any(total.any() for total, _ in ends):
        yield "the sum still contains masks of missing members"
    first, second = (
        {seed for answer in answers for seed in answer.seeds.values()} for _, answers in ends
    )
    if first & second:
        yield "a seed that one round opened is a seed of the next"


def _own(
    meeting: MaskedExchange, ends: list[tuple[np.ndarray, list[UnmaskingShares]]]
) -> Iterator[str]:
    """Checks the seeds of own masks: a new one for each member and round, which one share fewer
    than the threshold does not reveal.
    """
    seeds = [seed for _, answers in ends for seed in meeting.own_seeds(answers)]
    if len(set(seeds)) < len(seeds):
        yield f"{len(seeds)} masks of members of their own have {len(set(seeds))} seeds"
    if any(seed in meeting.own_seeds(answers, fewer=1) for _, answers in ends for seed in seeds):
        yield f"fewer shares than the threshold of {meeting.group.threshold} open a mask"


def _exact(meeting: MaskedExchange, missing: int) -> Iterator[str]:
    numbers = np.arange(SIZE, dtype=np.uint32) * np.uint32(2**20 + 7)
    sum, inputs = meeting.begin(2, missing, numbers)
    if (meeting.end(sum)[0] != numbers * np.uint32(len(inputs))).any():
        yield f"the sum of {len(inputs)} members is another than the sum of their numbers"


def _below(noise_shares: NoiseShares) -> Iterator[str]:
    """Plays a server that shows each member fewer survivors than are needed."""
    meeting = MaskedExchange(noise_shares)
    sum, _ = meeting.begin(0, 0, np.zeros(4, np.uint32))
    for name, survivor_list in sum.survivor_lists().items():
        others = (other for other in survivor_list.survivors if other != name)
        few = (name, *others)[: noise_shares.survivors - 1]
        try:
            meeting.members[name].agree(replace(survivor_list, survivors=few))
        except MemberRefusal:
            continue
        yield (
            f"a member stands for {len(few)} survivors, of {noise_shares.survivors} that are needed"
        )
        return
