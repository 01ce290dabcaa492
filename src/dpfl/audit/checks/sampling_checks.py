"""Checks that batches at real nodes, and cohorts of real coordinators, are the independent draws
that are accounted for.

Each sample has a pixel of its own and there is no noise, so an update shows how often each sample
was drawn. Shuffled batches have sizes that do not vary. One batch for all steps has the same
samples in every step. Both cost more than the accountant is told.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from dpfl.algorithms import Algorithm
from dpfl.audit.checks.randomness_checks import TOO_FAR, RandomnessCheck, count_score, squares_score
from dpfl.audit.measurements.canaries import LITTLE, WITHOUT, CanarySite, many_canaries
from dpfl.audit.test_bed import TestBed, linear
from dpfl.client.descent.optimisers import SGD
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientTask, LocalTraining, SecureSumTerms
from dpfl.data import IID, tensors
from dpfl.engines import one_thread
from dpfl.errors import DpflError
from dpfl.models import from_module
from dpfl.privacy import (
    All,
    Budget,
    Flat,
    Gaussian,
    Keyed,
    Randomness,
    Release,
    SystemEntropy,
)
from dpfl.privacy.mechanisms.sampling import Sampling
from dpfl.run.options import Execution, Privacy
from dpfl.run.prepare import prepare
from dpfl.run.resolve import RunSpec
from dpfl.server.coordinator import Coordinator
from dpfl.server.steps.policy import FixedSteps

DRAWS = 12
"""Samples of a batch: enough to show whether sizes are by chance."""

SINGLE, SEVERAL, STEPS, ROUNDS = 200, 60, 8, 200
"""Rounds of one step, rounds of several steps, the number of these steps, and rounds of cohorts."""

COINS, FEW = 100, 20
"""Rounds in which clients draw for themselves, and the least number of these clients."""


def batches(algorithm: Algorithm, seed: int = 0) -> RandomnessCheck:
    """Tests the batches of a client.

    Args:
        algorithm: The system.
        seed: The seed.

    Returns:
        The check.
    """
    release = algorithm.samples
    assert release is not None
    count = _population(release.sampling)
    rate = release.sampling.expected_size(count) / count
    clients = many_canaries(algorithm, count, np.ones(count, dtype=bool))
    node = clients.node(Keyed(seed))
    other = clients.node(Keyed(seed + 1))
    each = 1 if release.noise_shares else STEPS  # a secure sum is of one step
    try:
        unit = _update(clients, node, 0, 1, All())
        single, several, again = (
            np.stack([_update(clients, at, first + round, steps) / unit for round in range(rounds)])
            for at, first, rounds, steps in (
                (node, 0, SINGLE, 1),
                (node, SINGLE, SEVERAL, each),
                (other, 0, 20, 1),
            )
        )
    finally:
        node.close()
        other.close()
    counts = [_whole(table) for table in (single, several, again)]
    scores = fairness(counts[0], rate, release.sampling.constant_size)
    scores["samples over the steps of a round"] = _within(counts[1], rate, each)
    faults = (
        ["batches are the same whatever the seed"]
        if np.array_equal(counts[0][:20], counts[2])
        else []
    )
    return _judge(
        f"{SINGLE} batches, and {SEVERAL} rounds of {each}, of {count} samples", scores, faults
    )


def cohorts(sampling: Sampling, seed: int = 0) -> RandomnessCheck:
    """Tests the cohorts of a run as it is prepared, from a seed and from the system's entropy.

    Nobody may know the cohort of a run with the system's entropy.

    Args:
        sampling: The sampling of clients.
        seed: The seed.

    Returns:
        The check.
    """
    count = _population(sampling)
    seed_cohorts, other = (
        _cohorts(sampling, count, seed, "keyed", ROUNDS) for seed in (seed, seed + 1)
    )
    fresh, anew = (_cohorts(sampling, count, seed, "system", 20) for _ in range(2))
    rate = sampling.expected_size(count) / count
    faults = (
        ["cohorts are the same whatever the seed"] if np.array_equal(seed_cohorts, other) else []
    )
    if np.array_equal(fresh, anew):
        faults.append(
            "cohorts from the system's entropy are the same every time: whoever knows them gains "
            "all that sampling gave"
        )
    return _judge(
        f"{ROUNDS} cohorts of {count} clients",
        fairness(seed_cohorts, rate, sampling.constant_size),
        faults,
    )


def coins(algorithm: Algorithm, seed: int = 0) -> RandomnessCheck:
    """Tests the coins of clients in a secure sum, who decide for themselves whether they take part.

    A client that takes part sends more than almost no noise.

    Args:
        algorithm: The system.
        seed: The seed.

    Returns:
        The check.
    """
    seed_coins = _coins(algorithm, Keyed(seed), COINS)
    other, fresh, anew = (
        _coins(algorithm, source, 20)
        for source in (Keyed(seed + 1), SystemEntropy(), SystemEntropy())
    )
    same = np.array_equal(seed_coins[:20], other)
    faults = ["clients draw the same whatever the seed"] if same else []
    if np.array_equal(fresh, anew):
        faults.append("clients draw the same from the system's entropy every time")
    count = seed_coins.shape[1]
    rate = algorithm.clients.sampling.expected_size(count) / count
    return _judge(
        f"{COINS} rounds of {count} clients that draw themselves",
        fairness(seed_coins, rate, False),
        faults,
    )


def _coins(algorithm: Algorithm, randomness: Randomness, rounds: int) -> np.ndarray:
    """Plays rounds at real clients, and writes who trained in each of them as 0 and 1."""
    sampling = algorithm.clients.sampling
    expected_clients = 0 if sampling.constant_size else sampling.nominal_size or 0
    count = max(FEW, 4 * expected_clients)
    rows = torch.zeros(1, dtype=torch.int64)
    test_bed = TestBed(linear(2), torch.full((1, 2), 100.0), rows, 2, (rows,) * count, (1,) * count)
    release = replace(algorithm.clients.for_model((4,)), clip=Flat(1.0), noise=Gaussian(LITTLE))
    task = ClientTask(
        0, 0, 1, LocalTraining(SGD(1.0)), release, secure_sum=SecureSumTerms(1.0, 1.0, count)
    )
    integer_sum, vector, node = (
        release.integer_sum(1.0, count),
        test_bed.flat().read(),
        ClientRunner(test_bed.context(randomness)),
    )
    try:
        with one_thread():
            numbers = [
                [node.work(replace(task, round=r, client=c), vector).numbers for c in range(count)]
                for r in range(rounds)
            ]
    finally:
        node.close()
    return np.array(
        [
            [
                float(np.linalg.norm(integer_sum.total(upload)) > 0.5)
                for upload in row
                if upload is not None
            ]
            for row in numbers
        ]
    )


def fairness(table: np.ndarray, rate: float, fixed: bool) -> dict[str, float]:
    """Scores a table of draws.

    Args:
        table: Draws (draws, units) of 0 and 1.
        rate: Probability of each unit in each draw.
        fixed: Whether every draw has the same size.

    Returns:
        Scores in standard deviations: sizes, units, and units that come twice running.
    """
    draws, units = table.shape
    variance = rate * (1 - rate)
    sizes, often, twice = table.sum(1), table.sum(0), float((table[1:] * table[:-1]).sum())
    correction = units / max(units - 1, 1) if fixed else 1.0
    overlap = units * (draws - 1) * rate**2
    spread = units * ((draws - 1) * rate**2 * (1 - rate**2) + 2 * (draws - 2) * (rate**3 - rate**4))
    scores = {
        "how often a unit comes": squares_score(
            float(np.square(often - draws * rate).sum()) / (draws * variance * correction), units
        ),
        "who comes twice running": count_score(twice, overlap, spread),
    }
    if fixed:
        return scores | {"sizes": count_score(float(np.abs(sizes - units * rate).sum()), 0.0, 0.0)}
    return scores | {
        "how many come": count_score(
            float(sizes.sum()), draws * units * rate, draws * units * variance
        ),
        "sizes": squares_score(
            float(np.square(sizes - units * rate).sum()) / (units * variance), draws
        ),
    }


def _within(counts: np.ndarray, rate: float, steps: int) -> float:
    """Compares the variance of draws per sample with that of independent coins."""
    variance = steps * rate * (1 - rate)
    fourth = 2 + (1 - 6 * rate * (1 - rate)) / variance
    return count_score(
        float(np.square(counts - steps * rate).sum()) / variance, counts.size, counts.size * fourth
    )


def _judge(subject: str, scores: dict[str, float], faults: list[str]) -> RandomnessCheck:
    far = [
        f"{what}: {score:+.1f} deviations from independent draws"
        for what, score in scores.items()
        if abs(score) > TOO_FAR
    ]
    furthest = max(scores.values(), key=abs)
    return RandomnessCheck(
        f"{subject}: none further than {abs(furthest):.1f} deviations from independent draws",
        (*faults, *far),
    )


def _population(sampling: Sampling) -> int:
    """Chooses the number of units of which some are drawn: five times a given size, or else enough
    that a draw has several of them.
    """
    if sampling.nominal_size is not None:
        return max(60, 5 * sampling.nominal_size)
    return min(max(60, math.ceil(DRAWS / sampling.expected_size(1))), 2000)


def _update(
    clients: CanarySite,
    node: ClientRunner,
    round: int,
    steps: int,
    sampling: Sampling | None = None,
) -> np.ndarray:
    """Returns the update of plain descent of the client that has all samples."""
    task = clients.task(round, WITHOUT)
    assert task.samples is not None
    samples = replace(
        task.samples, sampling=sampling or task.samples.sampling, divide_by_drawn=False
    )
    samples = samples.with_noise(LITTLE) if samples.noise_shares else replace(samples, noise=None)
    bare = replace(task, steps=steps, samples=samples, local=LocalTraining(SGD(1.0)))
    with one_thread():
        update = clients.update(node, bare).reshape(2, -1)[0]
    return update * samples.divisor_for(clients.test_bed.declared_sizes[WITHOUT])


def _whole(readings: np.ndarray) -> np.ndarray:
    counts = np.rint(readings)
    if np.abs(readings - counts).max() > 0.2:
        raise DpflError("The batches of this system cannot be read off its updates.")
    return counts


def _cohorts(sampling: Sampling, count: int, seed: int, entropy: str, rounds: int) -> np.ndarray:
    """Plays rounds, and writes who was asked in each of them as 0 and 1."""
    x, y = torch.zeros(2 * count, 2), torch.arange(2 * count) % 2
    federation = tensors(x, y, x[:2], y[:2], name="audit").split(clients=count, how=IID(), seed=0)
    algorithm = Algorithm(
        "audit",
        LocalTraining(SGD(0.1)),
        FixedSteps(1),
        clients=Release(sampling, Flat(1.0), Gaussian(1.0)),
    )
    table = np.zeros((rounds, count))
    with tempfile.TemporaryDirectory(prefix="dpfl-audit-") as folder:
        spec = RunSpec(
            from_module(torch.nn.Linear(2, 2)),
            federation,
            algorithm,
            Budget(rounds=rounds),
            Privacy(entropy=entropy, noise="plain"),
            execution=Execution(seed=seed, out=Path(folder) / "run"),
        )
        job = prepare(spec)
        with closing(job.engine):
            for row, cohort in zip(table, _cohorts_of(job.coordinator), strict=True):
                row[cohort] = 1
    return table


def _cohorts_of(coordinator: Coordinator) -> Iterator[list[int]]:
    while (request := coordinator.next_request()) is not None:
        yield [task.client for task in request.tasks]
        coordinator.close_round(request.steps)
