"""The base of every private query, so that no caller needs to know which query it holds.

A server may ask a client four things beside its updates: label counts (`histogram.py`), the mean of
its samples (`mean.py`), the scales of its columns (`columns.py`), and a metric of the model
(`metric.py`). Each is the same release. Every unit of the client counts with a vector of norm at
most S, the vectors are summed to s, and the client sends s + N(0, (z S)^2 I), post-processed.
Adding or removing one unit moves s by at most S, so the answer costs one Gaussian event with noise
multiplier z (`PrivateQuery.event`), whatever the data.

The noise is added in one of three places:

- by the client alone: in floating point, or on a grid (`secure_noise.py`);
- by all clients together: each adds a share of it inside a secure sum (`noise_shares.py`);
- by nobody, where the server is trusted (`trusted`) or the query is exact (`exact`). Neither is a
  release that the client's ledger can pay for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

import numpy as np

from dpfl.privacy.accounting.events import Event, gaussian
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerArray, IntegerSum
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.noises.secure_noise import secure_sum

if TYPE_CHECKING:
    from torch import Tensor

UNDECLARED_FACTOR = 100.0
"""How many times more units than declared a client may have before its answer is refused."""

NOISE_TAIL = 12.0
"""The norm of n Gaussian numbers exceeds sqrt(n) + 12 with probability below e^-72."""

_Query = TypeVar("_Query", bound="PrivateQuery")


class QuerySubject(Protocol):
    """The data of one client, as queries read it.

    A unit is a sample, or a person by the mean of their rows. One unit of either kind changes the
    label counts by a vector of norm at most 1.
    """

    @property
    def counts(self) -> np.ndarray:
        """The number of units per class."""

    @property
    def blocks(self) -> Iterable[Tensor]:
        """The units as rows (units, features), some at a time."""

    @property
    def features(self) -> int:
        """The number of features of a sample."""

    @property
    def declared_size(self) -> int:
        """The number of units that the client declared before training."""

    def vectors(self, of: Callable[[Tensor, Tensor], Tensor]) -> Iterable[Tensor]:
        """Maps every unit to a vector.

        Args:
            of: Maps samples and labels to one vector per sample.

        Returns:
            The vectors (units, n), some at a time. A person's vector is the mean over their rows.
        """

    def metric_terms(self, most: float) -> Iterable[Tensor]:
        """Maps every unit to its terms of a metric, under the model that is queried.

        Args:
            most: The largest loss that one sample counts with.

        Returns:
            The terms (units, n), some at a time.
        """


class PrivateQuery(ABC):
    """A query that a client answers once, and pays for with one Gaussian event.

    Attributes:
        noise_multiplier: The noise's standard deviation over the sensitivity. None adds no noise.
        secure: Whether the noise is on a grid, from a stream cipher (`secure_noise.py`).
        trusted: Whether a trusted server gets the exact answer, because it only shows sums with
            noise for whole clients.
        summable: Whether the server can use the sum of all answers in place of each of them.
        asks_metric: Whether the query is about the trained model, after the last round.
    """

    noise_multiplier: float | None
    secure: bool
    trusted: bool = False
    summable: ClassVar[bool] = True
    asks_metric: ClassVar[bool] = False

    @property
    def exact(self) -> bool:
        """Whether the answer carries no noise at all."""
        return self.noise_multiplier is None

    @property
    def event(self) -> Event:
        """The cost of one answer: a Gaussian event, or one without a guarantee if it is exact."""
        return gaussian(self.noise_multiplier or 0.0)

    @property
    def held_out_share(self) -> float:
        """The share of a client's samples that the query keeps out of training."""
        return 0.0

    @abstractmethod
    def answer_width(self, size: int) -> int:
        """Computes how many numbers an answer has.

        Args:
            size: The number of features of a sample; for label counts, the number of classes.

        Returns:
            The length of the answer.
        """

    @abstractmethod
    def sensitivity(self, width: int) -> float:
        """Bounds how far one unit, added or removed, moves the exact sum.

        Args:
            width: The length of the answer.

        Returns:
            The L2 sensitivity S.
        """

    @abstractmethod
    def exact_sum(self, data: QuerySubject) -> Tensor:
        """Sums the bounded vectors of all units.

        Args:
            data: The client's data.

        Returns:
            The sum s in float64, without noise.
        """

    def stddev(self, width: int) -> float:
        """Computes the standard deviation z S of the noise on each number of the sum.

        Args:
            width: The length of the answer.

        Returns:
            The standard deviation; 0 for an exact query.
        """
        return (self.noise_multiplier or 0.0) * self.sensitivity(width)

    def with_secure_noise(self: _Query) -> _Query:
        """Puts the noise on a grid.

        Returns:
            The same query with secure noise.
        """
        return replace(self, secure=True)  # type: ignore[type-var]

    def with_noise(self: _Query, noise_multiplier: float) -> _Query:
        """Sets the noise.

        Args:
            noise_multiplier: The noise's standard deviation over the sensitivity.

        Returns:
            The same query with that noise.
        """
        return replace(self, noise_multiplier=noise_multiplier)  # type: ignore[type-var]

    def answer(self, data: QuerySubject, rng: np.random.Generator) -> np.ndarray:
        """Answers for one client: (s + N(0, (z S)^2 I)) / n, with n the declared size.

        Noise on a grid is larger by what rounding the sum to the grid can move it.

        Args:
            data: The client's data.
            rng: The generator of the noise.

        Returns:
            The answer in float32. The client debits `event` before it leaves.
        """
        return (self._add_noise(self.exact_sum(data), rng) / data.declared_size).float().numpy()

    def _add_noise(self, total: Tensor, rng: np.random.Generator) -> Tensor:
        stddev = self.stddev(total.numel())
        if self.secure:
            return secure_sum(total, stddev, self.noise_multiplier or 0.0, rng)
        return total + gaussian_vector(total.numel(), stddev, rng)

    def integer_sum(
        self, noise_shares: NoiseShares, width: int, bound: float, clients: int
    ) -> IntegerSum:
        """Describes the secure sum of all clients' answers.

        Args:
            noise_shares: Who shares the noise.
            width: The length of the answer.
            bound: The largest magnitude of one number of a client's sum.
            clients: The number of clients in the sum.

        Returns:
            The sum's grid and integer type.
        """
        share = noise_shares.share(self.stddev(width))
        return IntegerSum(share, bound, clients)

    def shared_answer(
        self,
        data: QuerySubject,
        noise_shares: NoiseShares,
        bound: float,
        clients: int,
        rng: np.random.Generator,
    ) -> IntegerArray:
        """Computes one client's part of the secure sum: s with this client's share of the noise.

        Args:
            data: The client's data.
            noise_shares: Who shares the noise.
            bound: The largest magnitude of one number of a client's sum.
            clients: The number of clients in the sum.
            rng: The generator of the share.

        Returns:
            The integers that the client masks.
        """
        total = self.exact_sum(data)
        integer_sum = self.integer_sum(noise_shares, len(total), bound, clients)
        return integer_sum.numbers(total.numpy(), rng)

    def matches_data(self, features: int, classes: int) -> bool:
        """Says whether a client's data has what the query asks for.

        Args:
            features: The number of features of a sample.
            classes: The number of classes; 0 without classes.

        Returns:
            Whether the query can be answered.
        """
        return True

    def matches_metric(self, numbers: int, cells: int) -> bool:
        """Says whether the query asks for the terms that the client's task defines.

        Args:
            numbers: The numbers between 0 and 1 per sample.
            cells: The cells of which each sample is in one.

        Returns:
            Whether both are those of the query.
        """
        return True

    def admits(self, answer: np.ndarray, declared_size: int) -> bool:
        """Says whether an honest client could have sent an answer.

        Args:
            answer: The answer of one client.
            declared_size: The number of units that the client declared.

        Returns:
            Whether its length is right and its norm is at most S (100 + 2 z (sqrt(d) + 12) / n).
        """
        width = self.answer_width(answer.size)
        noise = 2 * (self.noise_multiplier or 0.0) * (math.sqrt(width) + NOISE_TAIL) / declared_size
        longest = self.sensitivity(width) * (UNDECLARED_FACTOR + noise)
        return answer.size == width and math.hypot(*answer.tolist()) <= longest
