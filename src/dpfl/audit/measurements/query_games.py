"""Measures what clients answer besides their updates: a noisy histogram, mean, metric or slope.

One sample is in or out, at real clients. The noise is so large that a few thousand guesses say
little. But it is Gaussian. So the game computes without noise how far the sample moves the answer,
and takes the amount of noise from the spread of answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from dpfl.algorithms import Algorithm
from dpfl.audit.bounds import LARGEST, MeasuredEpsilon, SampledGaussian, deviation_at_most
from dpfl.audit.measurements.canaries import WITH, WITHOUT
from dpfl.audit.measurements.distinguish import distinguish
from dpfl.audit.sums import beside, clients_for, room
from dpfl.audit.test_bed import TestBed, linear
from dpfl.client.descent.optimisers import SGD
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientTask, LocalTraining
from dpfl.codec import tag_of
from dpfl.engines import one_thread
from dpfl.errors import DpflError
from dpfl.models import from_module
from dpfl.privacy import All, Flat, Gaussian, Keyed, Randomness, Release
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.privacy.queries.query import PrivateQuery
from dpfl.server.aggregation.round_sum import AnswerSum
from dpfl.tasks import Binary, MultiClass, Regression
from dpfl.tasks import Task as Learning
from dpfl.tasks.noisy import count_outcomes, numbers_and_cells

GUESSES = 300
"""Guesses for a bound that assumes nothing about the noise. It shows whether there is any noise."""

FEATURES = 16
FEW, MANY = 300, 30_000
"""Samples of the rare and of the usual label. The share of the rare label is then its noisy count,
and next to nothing else.
"""

DRIVERS, APART = 100, 1e-3
"""Samples that turn the sign of the last layer in one step, and how far its two weights are apart
before that step.
"""


@dataclass(frozen=True)
class QueryGame:
    """One query to one client.

    Attributes:
        test_bed: The clients and their data.
        task: The task that asks.
        vector: The model that the server sends.
        read: Turns an answer into the number that an adversary looks at.
    """

    test_bed: TestBed
    task: ClientTask
    vector: torch.Tensor
    read: Callable[[dict[str, np.ndarray]], float]

    def answers(self, client: int, first: int, times: int, randomness: Randomness) -> np.ndarray:
        """Asks one client several times.

        Args:
            client: The client.
            first: Number of the first round, which nothing else uses.
            times: Number of answers.
            randomness: Source of the noise.

        Returns:
            The numbers that the adversary reads.
        """
        node = ClientRunner(self.test_bed.context(randomness))
        try:
            with one_thread():
                return np.array(
                    [
                        self._answer(node, replace(self.task, round=first + n, client=client))
                        for n in range(times)
                    ]
                )
        finally:
            node.close()

    def _answer(self, node: ClientRunner, task: ClientTask) -> float:
        reply = node.work(task, self.vector)
        if reply.numbers is not None:
            return self.read({"answer": self._mean_of_sum(node, task, reply.numbers)})
        assert reply.raw is not None
        return self.read(dict(reply.raw))

    def _mean_of_sum(self, node: ClientRunner, task: ClientTask, numbers: np.ndarray) -> np.ndarray:
        """Computes the mean that a sum over clients gives where the other clients add nothing but
        their noise.
        """
        assert task.noise_shares is not None
        assert task.query is not None
        size = self.test_bed.declared_sizes[task.client]
        integer_sum = AnswerSum(
            task.query, task.noise_shares, len(numbers), (size,) * clients_for(task.noise_shares)
        ).integer_sum
        rng = node.context.randomness.generator("the shares of others", task.round, task.client)
        return beside(integer_sum, task.noise_shares, numbers, rng) / size


def one_answer(
    query: PrivateQuery,
    delta: float,
    trials: int,
    confidence: float,
    randomness: Randomness,
    persons: bool = False,
    noise_shares: NoiseShares | None = None,
) -> MeasuredEpsilon:
    """Measures one answer to a query.

    There are two bounds that hold together, and the larger one counts.

    Args:
        query: The query.
        delta: Delta of the guarantee.
        trials: Number of answers.
        confidence: Confidence of the bound.
        randomness: Source of the noise.
        persons: Whether persons are protected, not samples.
        noise_shares: Who shares the noise of a secure sum; None if the answer is seen by itself.

    Returns:
        The bound.
    """
    game = _game_of(query)
    if noise_shares and query.summable:
        game = _in_a_sum(game, query, noise_shares)
    game = replace(game, test_bed=replace(game.test_bed, persons=persons))
    silent = replace(game, task=replace(game.task, query=query.with_noise(1e-12)))
    each = 1 - (1 - confidence) / 2
    normal = _normal(
        game,
        silent,
        trials,
        each,
        randomness,
        lambda mu: SampledGaussian(mu, 1.0).epsilon(delta),
    )

    def mechanism(within: bool, times: int, rng: np.random.Generator) -> np.ndarray:
        return game.answers(
            WITH if within else WITHOUT, int(rng.integers(2**50)), times, randomness
        )[:, None]

    free = distinguish(mechanism, delta, min(trials, GUESSES), each, randomness, name="answer")
    return replace(max(normal, free, key=lambda bound: bound.epsilon), confidence=confidence)


def one_slope(
    algorithm: Algorithm, delta: float, trials: int, confidence: float, randomness: Randomness
) -> MeasuredEpsilon:
    """Measures one slope that clients pay for.

    Args:
        algorithm: The system.
        delta: Delta of the guarantee.
        trials: Number of answers.
        confidence: Confidence of the bound.
        randomness: Source of the noise.

    Returns:
        The bound.

    Raises:
        DpflError: The system does not sample at a rate.
    """
    release = algorithm.samples
    assert release is not None
    rate = release.sampling.expected_size(1)
    if not 0 < rate <= 1:
        raise DpflError("The audit of a slope needs samples that are drawn at a rate.")
    game = _slope(replace(release, sampling=All(), divide_by_drawn=False))
    game = replace(game, test_bed=game.test_bed.protecting(algorithm))
    silent = replace(
        game, task=replace(game.task, samples=replace(release, sampling=All(), noise=None))
    )
    return _normal(
        game,
        silent,
        trials,
        confidence,
        randomness,
        lambda mu: SampledGaussian(mu, rate).epsilon(delta),
    )


def _normal(
    game: QueryGame, silent: QueryGame, trials: int, confidence: float, randomness: Randomness,
    epsilon: Callable[[float], float],
) -> MeasuredEpsilon:  # fmt: skip
    one, other = (float(silent.answers(client, 0, 1, Keyed(0))[0]) for client in (WITH, WITHOUT))
    deviation = deviation_at_most(game.answers(WITHOUT, 0, trials, randomness), confidence)
    mu = abs(one - other) / max(deviation, abs(one - other) / LARGEST, 1e-30)
    return MeasuredEpsilon(
        epsilon(mu),
        confidence,
        trials,
        f"Gaussian trade-off, by the spread of {trials} answers",
        mu,
    )


def _game_of(query: PrivateQuery) -> QueryGame:
    return _GAMES[tag_of(query)](query)


def _in_a_sum(game: QueryGame, query: PrivateQuery, noise_shares: NoiseShares) -> QueryGame:
    width = query.answer_width(game.test_bed.x[0].numel())
    bound = query.sensitivity(width) * game.test_bed.declared_sizes[0]
    release = Release(All(), Flat(1.0), Gaussian(1.0), noise_shares=noise_shares)
    return replace(
        game, task=replace(game.task, samples=release, secure_sum=room(bound, noise_shares))
    )


def _columns(query: ColumnQuery) -> QueryGame:
    """Builds the game of a column query. The canary is at the upper bound of every column, and the
    adversary looks along its vector.
    """
    x = torch.zeros(FEW + 1, query.numbers)
    x[0] = 1.0
    canary = query.bound_rows(x[:1])[0].double().numpy() / query.bound
    return _with_samples(
        query,
        x,
        torch.zeros(FEW + 1, dtype=torch.int64),
        lambda raw: float(raw["answer"] @ canary),
    )


def _metric(query: MetricQuery) -> QueryGame:
    """Builds the game of a metric query. The model knows nothing, and the canary's answer is right
    all the same, with the largest loss that counts. The adversary looks along its vector.
    """
    weights = (2 * query.most / math.log(2), 1.0)
    tasks: tuple[Learning, ...] = (Regression(), MultiClass(2, weights), Binary(weights))
    task = next(task for task in tasks if numbers_and_cells(task) == (query.numbers, query.cells))
    y = torch.zeros(FEW + 1, dtype=task.examples(1).dtype)
    if not task.classes:
        y[0] = 2 * math.sqrt(query.most)
    counts = (
        count_outcomes(task, torch.zeros(1, task.outputs), y[:1], query.most)[0].double().numpy()
    )
    canary = counts / np.linalg.norm(counts)
    game = _with_samples(
        query, torch.zeros(FEW + 1, 1), y, lambda raw: float(raw["answer"] @ canary)
    )
    test_bed = replace(game.test_bed, model=linear(1, task.outputs), own_task=task)
    return replace(game, test_bed=test_bed, vector=test_bed.flat().read())


def _histogram(query: LabelQuery) -> QueryGame:
    y = torch.cat([torch.zeros(FEW + 1, dtype=torch.int64), torch.ones(MANY, dtype=torch.int64)])
    return _with_samples(
        query, torch.zeros(1, 1).expand(len(y), 1), y, lambda raw: _count(raw["answer"])
    )


def _count(shares: np.ndarray) -> float:
    """Recovers the count of the rare label from the released shares."""
    return float(shares[0] / shares[1] * MANY)


def _mean(query: MeanQuery) -> QueryGame:
    x = torch.zeros(FEW + 1, FEATURES)
    x[0] = 10.0
    return _with_samples(
        query, x, torch.zeros(FEW + 1, dtype=torch.int64), lambda raw: float(raw["answer"].sum())
    )


def _with_samples(
    query: PrivateQuery,
    x: torch.Tensor,
    y: torch.Tensor,
    read: Callable[[dict[str, np.ndarray]], float],
) -> QueryGame:
    """Builds a game in which client 0 alone has the first sample, and both clients have the
    rest.
    """
    rows = torch.arange(len(y))
    test_bed = TestBed(linear(x.shape[1]), x, y, 2, (rows, rows[1:]), (len(y),) * 2)
    return QueryGame(
        test_bed,
        ClientTask(0, 0, 0, LocalTraining(SGD(1.0)), Release(), query=query),
        test_bed.flat().read(),
        read,
    )


_GAMES: dict[str, Callable[..., QueryGame]] = {
    "query.columns": _columns,
    "query.histogram": _histogram,
    "query.mean": _mean,
    "query.metric": _metric,
}
"""What to play for each kind of query, by its tag."""


def _slope(release: Release) -> QueryGame:
    """Scores (u, v) (a x_1 + b x_2): the canary's gradient for a is (v - u) x_1 / 2, and the
    drivers, on x_2, turn the sign of v - u while their own gradients stay what they are."""
    level, b = release.clip.clip_norm, 1e4 * APART
    layers = (torch.nn.Linear(2, 1, bias=False), torch.nn.Linear(1, 2, bias=False))
    x, y = torch.zeros(DRIVERS + 1, 2), torch.zeros(DRIVERS + 1, dtype=torch.int64)
    x[0, 0], x[1:, 1] = 10 * release.for_slopes.clip.clip_norm / APART, 1 / (APART * b)
    rows = torch.arange(DRIVERS + 1)
    test_bed = TestBed(
        from_module(torch.nn.Sequential(*layers)), x, y, 2, (rows, rows[1:]), (DRIVERS,) * 2
    )
    rate = 2**0.5 * APART / level
    task = ClientTask(0, 0, 1, LocalTraining(SGD(rate)), Release(), release, slope=True)
    return QueryGame(
        test_bed,
        task,
        torch.tensor([0.0, b, -APART / 2, APART / 2]),
        lambda raw: float(raw["slope"]),
    )
