"""The sum of a round under secure aggregation: the numbers that each client sends, and the step
that their sum gives.
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
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerArray, IntegerSum
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.queries.mean import MeanAnswer
from dpfl.privacy.queries.query import PrivateQuery
from dpfl.secagg import MaskedSum, RepeatSum, SumGroup, SumId, SumMember, UnmaskingShares
from dpfl.secagg.shares import added_bytes

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
AddIntegers = Callable[[int, Mapping[int, IntegerArray]], IntegerArray]
"""Adds up the numbers of the clients that answered in a round: plainly, or by the protocol."""


def add_integers(round: int, numbers: Mapping[int, IntegerArray]) -> IntegerArray:
    """Adds up whole numbers as they are, where a simulation needs no masks.

    Args:
        round: The number of the round.
        numbers: What each client sent.

    Returns:
        The sum.
    """
    first, *others = numbers.values()
    total = first.copy()
    for client in others:
        total += client
    return total


class SimulatedMaskedSum:
    """The protocol of secure aggregation with every member in this process, so that a simulation
    runs it too. A client without numbers is missing.

    Args:
        run: The identifier of the run.
        names: The name of each client.
        shares: How many clients are in every sum, and how many of them may collude.
    """

    def __init__(self, run: str, names: Sequence[str], shares: NoiseShares) -> None:
        keys = {name: Ed25519PrivateKey.generate() for name in names}
        identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
        self._names = names
        self._group = SumGroup(run, identities, shares.survivors, shares.colluders)
        self._members = {name: SumMember(self._group, name, key) for name, key in keys.items()}
        advertisements = [member.advertisement for member in self._members.values()]
        for member in self._members.values():
            member.receive_keys(advertisements)
        self._session = next(iter(self._members.values())).session
        self._attempts: dict[int, int] = {}

    def __call__(self, round: int, numbers: Mapping[int, IntegerArray]) -> IntegerArray:
        # A round may have sums of answers before its own.
        self._attempts[round] = self._attempts.get(round, -1) + 1
        here = SumId(self._session, round, self._attempts[round])
        first = next(iter(numbers.values()))
        sum = MaskedSum(self._group, here, len(first), 8 * first.dtype.itemsize)
        for client, own in numbers.items():
            sum.take(self._members[self._names[client]].mask(here, own))
        answers = [
            self._members[name].agree(survivors) for name, survivors in sum.survivor_lists().items()
        ]
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
    numbers: Mapping[int, IntegerArray],
    shares: NoiseShares,
    compute: Callable[[], T],
    when: str,
    complaints: list[str],
) -> T | None:
    """Opens a secure sum, if enough clients are in it.

    Args:
        numbers: What each client sent.
        shares: How many clients must be in every sum.
        compute: Adds up the numbers, and computes what follows from their sum.
        when: When this is, in words.
        complaints: One line is added here where the sum is not opened.

    Returns:
        What `compute` returned; None where the sum was not opened.
    """
    try:
        if len(numbers) < shares.survivors:
            raise RepeatSum(
                f"{len(numbers)} clients are left of {shares.survivors}, so nothing was opened"
            )
        return compute()
    except RepeatSum as why:
        complaints.append(f"{when}: {why}")
        return None


@dataclass(frozen=True)
class RoundSum:
    """The secure sum of a round. Client i sends a_i <= 1 times its clipped sum.

    In steps an update is -eta / (q n_i) times a clipped sum. So a_i is the client's weight over
    q n_i, in units of the largest such quotient; with weights by size, all a_i are 1. On the sum of
    a round an update counts as it is.

    Attributes:
        release: The release that clients share the noise of.
        scales: The factor a_i of each client.
        factor: What the sum is multiplied by to give the weighted sum of the updates.
        bound: The largest size of one entry that a client may send, before noise.
        steps: Whether clients send clipped sums of one step, and not updates.
    """

    release: Release
    scales: tuple[float, ...]
    factor: float
    bound: float
    steps: bool = False

    @classmethod
    def of_steps(
        cls, release: Release, weights: Tensor, declared_sizes: Sequence[int], rate: float
    ) -> RoundSum:
        """Describes the sum of one step of every client.

        Args:
            release: The release of samples in the step.
            weights: The weight of each client.
            declared_sizes: How many units each client declared.
            rate: The learning rate.

        Returns:
            The sum, with each client's factor in units of the largest.
        """
        factors = [
            float(weight) / release.divisor_for(size)
            for weight, size in zip(weights, declared_sizes, strict=True)
        ]
        largest = max(factors)
        scales = tuple(min(1.0, factor / largest) if largest else 0.0 for factor in factors)
        return cls(
            release,
            scales,
            -rate * largest,
            release.clip.clip_norm * max(declared_sizes),
            steps=True,
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
    def integer_sum(self) -> IntegerSum:
        """The grid and the integer type of the sum."""
        return self.release.integer_sum(self.bound, len(self.scales))

    def terms(self, client: int) -> SecureSumTerms:
        """Returns the public terms of a client's part.

        Args:
            client: The client's number.

        Returns:
            The terms, which its task carries.
        """
        return SecureSumTerms(self.scales[client], self.bound, len(self.scales))

    def size(self, layout: Layout) -> int:
        """Returns the length of an update.

        Args:
            layout: The layout of the model.

        Returns:
            How many numbers it has. Steps leave what they do not train as it is.
        """
        return layout.trainable if self.steps else layout.size

    def message_size(self, layout: Layout) -> int:
        """Returns how many numbers a client sends.

        Args:
            layout: The layout of the model.

        Returns:
            The length of an update or of its coefficients, and one more for a count where the clip
            follows one.
        """
        return len(self.release.into_sum(torch.zeros(self.size(layout))))

    def traffic(self, layout: Layout) -> int:
        """Computes the traffic of one client in a round in which nobody is missing.

        Args:
            layout: The layout of the model.

        Returns:
            Bytes: the model down, the numbers up, and what the protocol adds.
        """
        return (
            4 * layout.size
            + self.integer_sum.bits // 8 * self.message_size(layout)
            + added_bytes(len(self.scales))
        )

    def numbers_fault(self, reply: ClientReply, layout: Layout) -> str:
        """Says what is wrong with the numbers of a reply.

        Args:
            reply: The reply.
            layout: The layout of the model.

        Returns:
            A sentence; empty where nothing is wrong.
        """
        return numbers_fault(reply, self.message_size(layout), self.integer_sum)

    def update(
        self, numbers: Mapping[int, IntegerArray], add: AddIntegers, round: int, layout: Layout
    ) -> tuple[Tensor, float | None]:
        """Computes the weighted sum of the updates from the sum of what clients sent.

        Args:
            numbers: What each client sent.
            add: Adds up the numbers.
            round: The number of the round.
            layout: The layout of the model.

        Returns:
            The weighted sum as a vector of the model, and the noisy sum of b - 1/2 where the clip
            follows it, else None.
        """
        update = torch.zeros(layout.size)
        total = torch.from_numpy(self.integer_sum.total(add(round, numbers)))
        unit, count = self.release.count_unit, None
        if unit is not None:
            total, count = total[:-1], float(total[-1]) / unit
        update[: self.size(layout)] = self.release.inward(total * self.factor)
        return update, count


@dataclass(frozen=True)
class AnswerSum:
    """The secure sum of answers to a private query.

    Attributes:
        query: The query.
        shares: How many clients are in every sum, and how many of them may collude.
        width: How many numbers an answer has.
        declared_sizes: How many samples each client declared.
    """

    query: PrivateQuery
    shares: NoiseShares
    width: int
    declared_sizes: Sequence[int]

    @property
    def integer_sum(self) -> IntegerSum:
        """The grid and the integer type of the sum."""
        bound = self.query.sensitivity(self.width) * max(self.declared_sizes)
        return self.query.integer_sum(self.shares, self.width, bound, len(self.declared_sizes))

    @property
    def terms(self) -> SecureSumTerms:
        """The public terms of a client's part, the same for all."""
        return SecureSumTerms(1.0, self.integer_sum.bound, self.integer_sum.clients)

    def numbers_fault(self, reply: ClientReply) -> str:
        """Says what is wrong with the numbers of a reply.

        Args:
            reply: The reply.

        Returns:
            A sentence; empty where nothing is wrong.
        """
        return numbers_fault(reply, self.width, self.integer_sum)

    def mean(self, numbers: Mapping[int, IntegerArray], add: AddIntegers, round: int) -> MeanAnswer:
        """Computes the mean over the samples of all clients whose numbers arrived.

        Args:
            numbers: What each client sent.
            add: Adds up the numbers.
            round: The number of the round.

        Returns:
            The mean. Its noise is made of the share of each of these clients.
        """
        units = sum(self.declared_sizes[client] for client in numbers)
        mean = torch.from_numpy(self.integer_sum.total(add(round, numbers)) / units)
        return MeanAnswer(mean, units, self.integer_sum.share * math.sqrt(len(numbers)) / units)


def numbers_fault(reply: ClientReply, size: int, integer_sum: IntegerSum) -> str:
    """Says what is wrong with the numbers that a client sent to a secure sum.

    Args:
        reply: The reply.
        size: How many numbers it should have.
        integer_sum: The sum, whose integer type the numbers must have.

    Returns:
        A sentence; empty where nothing is wrong.
    """
    numbers = reply.numbers
    if numbers is None or numbers.shape != (size,) or numbers.dtype != np.dtype(integer_sum.kind):
        return (
            "its numbers are not as many, or not of the kind, that were asked for, and were dropped"
        )
    return ""
