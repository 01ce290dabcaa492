"""The sum of a round under secure aggregation: what each client is to send, and the step that the
sum of them gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.client.task import ClientReply, SecureSumTerms
from dpfl.lazy_import import torch
from dpfl.models import Layout
from dpfl.privacy import Release
from dpfl.privacy.mechanisms.integer_sum import IntegerArray, IntegerSum
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.privacy.queries.mean import MeanAnswer
from dpfl.privacy.queries.query import PrivateQuery
from dpfl.secagg import MaskedSum, RepeatSum, SumGroup, SumId, SumMember, UnmaskingShares
from dpfl.secagg.shares import added_bytes

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
Add = Callable[[int, Mapping[int, IntegerArray]], IntegerArray]
"""The round and the numbers of those who answered to their sum: plain, or by the protocol."""


def plain(round: int, numbers: Mapping[int, IntegerArray]) -> IntegerArray:
    """Adds up whole numbers as they are, where a simulation needs no masks.

    Args:
        round: The number of the round.
        numbers: What each client sent.

    Returns:
        The sum.
    """
    first, *others = numbers.values()
    total = first.copy()
    for one in others:
        total += one
    return total


class SimulatedMaskedSum:
    """The protocol with every member in this process, so that a simulation tests it: whoever has no
    numbers is missing.
    """

    def __init__(self, run: str, names: Sequence[str], shared: NoiseShares) -> None:
        keys = {name: Ed25519PrivateKey.generate() for name in names}
        identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
        self._names, self._group = (
            names,
            SumGroup(run, identities, shared.survivors, shared.colluders),
        )
        self._members = {name: SumMember(self._group, name, key) for name, key in keys.items()}
        cards = [member.card for member in self._members.values()]
        for member in self._members.values():
            member.meet(cards)
        self._session = next(iter(self._members.values())).session
        self._attempts: dict[int, int] = {}

    def __call__(self, round: int, numbers: Mapping[int, IntegerArray]) -> IntegerArray:
        self._attempts[round] = (
            self._attempts.get(round, -1) + 1
        )  # a round may have sums of answers before its own
        here, first = (
            SumId(self._session, round, self._attempts[round]),
            next(iter(numbers.values())),
        )
        sum = MaskedSum(self._group, here, len(first), 8 * first.dtype.itemsize)
        for client, own in numbers.items():
            sum.take(self._members[self._names[client]].mask(here, own))
        answers = [self._members[name].agree(shown) for name, shown in sum.survivor_lists().items()]
        for answer in answers:
            if isinstance(answer, UnmaskingShares):
                sum.open(answer)
            else:
                sum.vote(answer)
        if sum.missing:
            votes = sum.votes()
            for name in sum.survivors:
                sum.open(self._members[name].open(votes))
        return sum.total()


def open_sum(
    sent: Mapping[int, IntegerArray],
    shared: NoiseShares,
    summed: Callable[[], T],
    when: str,
    lost: list[str],
) -> T | None:
    """What the sum gives; None where too few are left, or it could not be opened, which is said."""
    try:
        if len(sent) < shared.survivors:
            raise RepeatSum(
                f"{len(sent)} clients are left of {shared.survivors}, so nothing was opened"
            )
        return summed()
    except RepeatSum as why:
        lost.append(f"{when}: {why}")
        return None


@dataclass(frozen=True)
class RoundSum:
    """Client i sends a_i <= 1 times its clipped sum; `factor` of the sum of these is the weighted
    sum of their updates.

    In steps an update is -eta / (q n_i) of a clipped sum, so a_i is its weight over q n_i, in units
    of the largest such factor; by size all are 1. On the sum of a round an update counts as it is.
    """

    release: Release
    scales: tuple[float, ...]
    factor: float
    bound: float
    steps: bool = False

    @classmethod
    def of_steps(
        cls, release: Release, weights: Tensor, declared: Sequence[int], rate: float
    ) -> RoundSum:
        """Describes the sum of one step of every client.

        Args:
            release: The release of samples in the step.
            weights: The weight of each client.
            declared: How many units each client declared.
            rate: The learning rate.

        Returns:
            The sum, with each client's factor in units of the largest.
        """
        factors = [
            float(weight) / release.sampling.expected_size(size)
            for weight, size in zip(weights, declared, strict=True)
        ]
        largest = max(factors)
        scales = tuple(min(1.0, factor / largest) if largest else 0.0 for factor in factors)
        return cls(
            release, scales, -rate * largest, release.clip.clip_norm * max(declared), steps=True
        )

    @classmethod
    def of_updates(cls, release: Release, clients: int) -> RoundSum:
        """Describes the sum of clipped updates, which count alike.

        Args:
            release: The release of the clients of a round.
            clients: How many clients there are.

        Returns:
            The sum.
        """
        return cls(
            release,
            (1.0,) * clients,
            1.0,
            max(release.clip.clip_norm, (release.count_unit or 0.0) / 2),
        )

    @property
    def whole(self) -> IntegerSum:
        """The grid and the integer type of the sum."""
        return self.release.integer_sum(self.bound, len(self.scales))

    def asked(self, client: int) -> SecureSumTerms:
        """Gives the public terms of a client's part.

        Args:
            client: The client's number.

        Returns:
            The terms, which its task carries.
        """
        return SecureSumTerms(self.scales[client], self.bound, len(self.scales))

    def size(self, layout: Layout) -> int:
        """Of an update; what is not trained by steps does not move."""
        return layout.trainable if self.steps else layout.size

    def sent(self, layout: Layout) -> int:
        """How many numbers a client sends: an update, or its coefficients, and a count where the
        clip follows one.
        """
        return len(self.release.into_sum(torch.zeros(self.size(layout))))

    def traffic(self, layout: Layout) -> int:
        """Bytes to and from a client, a round: the model, the numbers, and what the protocol adds
        where nobody is missing.
        """
        return (
            4 * layout.size
            + self.whole.bits // 8 * self.sent(layout)
            + added_bytes(len(self.scales))
        )

    def fault(self, reply: ClientReply, layout: Layout) -> str:
        return fault(reply, self.sent(layout), self.whole)

    def update(
        self, sent: Mapping[int, IntegerArray], add: Add, round: int, layout: Layout
    ) -> tuple[Tensor, float | None]:
        """The weighted sum of the updates, as a vector of the model, and the sum of b - 1/2 where
        the clip follows it.
        """
        found, total = (
            torch.zeros(layout.size),
            torch.from_numpy(self.whole.total(add(round, sent))),
        )
        unit, count = self.release.count_unit, None
        if unit is not None:
            total, count = total[:-1], float(total[-1]) / unit
        found[: self.size(layout)] = self.release.inward(total * self.factor)
        return found, count


@dataclass(frozen=True)
class AnswerSum:
    """The sum, over clients with these declared sizes, of what their samples answer a question
    with, `width` numbers each.
    """

    survey: PrivateQuery
    shared: NoiseShares
    width: int
    declared: Sequence[int]

    @property
    def whole(self) -> IntegerSum:
        """The grid and the integer type of the sum."""
        bound = self.survey.sensitivity(self.width) * max(self.declared)
        return self.survey.integer_sum(self.shared, self.width, bound, len(self.declared))

    @property
    def asked(self) -> SecureSumTerms:
        """The public terms of a client's part, the same for all."""
        return SecureSumTerms(1.0, self.whole.bound, self.whole.clients)

    def fault(self, reply: ClientReply) -> str:
        return fault(reply, self.width, self.whole)

    def answered(self, sent: Mapping[int, IntegerArray], add: Add, round: int) -> MeanAnswer:
        """The mean over the samples of all whose numbers arrived; what is in it of the noise is
        every one's share.
        """
        known = sum(self.declared[client] for client in sent)
        mean = torch.from_numpy(self.whole.total(add(round, sent)) / known)
        return MeanAnswer(mean, known, self.whole.share * math.sqrt(len(sent)) / known)


def fault(reply: ClientReply, size: int, whole: IntegerSum) -> str:
    sent = reply.numbers
    if sent is None or sent.shape != (size,) or sent.dtype != np.dtype(whole.kind):
        return (
            "its numbers are not as many, or not of the kind, that were asked for, and were dropped"
        )
    return ""
