"""Checks noise as it leaves. On blank data, releases of real clients and coordinators are pure
noise.

It checks that there is as much noise as is stated, whoever replied and whatever adapts. It also
checks that no noise is repeated at any shift: within a release, between the steps of a round, or in
another round, client or run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
import torch
from torch import Tensor

from dpfl.algorithms import Algorithm
from dpfl.audit.checks.randomness_checks import (
    TOO_FAR,
    RandomnessCheck,
    largest_correlation,
    squares_score,
)
from dpfl.audit.leaks import with_everyone
from dpfl.audit.measurements.canaries import CanarySite
from dpfl.audit.sums import clients_for, honest_sum
from dpfl.audit.test_bed import TestBed, linear, play
from dpfl.client.descent.optimisers import SGD
from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Keyed, Randomness, Release, SystemEntropy
from dpfl.server.aggregation.round_sum import RoundSum
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.aggregation.weights import UniformWeights, round_divisor
from dpfl.server.steps.policy import FixedSteps

INPUTS = 1 << 15
"""Inputs of the model, which has two outputs. Its weights fill two of the blocks in which noise is
made, and their number is a power of two, as wavelets need it.
"""

ROUNDS, STEPS, CLIENTS = 2, 3, 30


@dataclass(frozen=True)
class NoiseSample:
    """Noise of one release in units of its stated standard deviation.

    Attributes:
        where: Where it comes from, in words.
        numbers: The numbers: independent and standard normal if all is well.
        steps: Number of steps that they are the sum of.
    """

    where: str
    numbers: np.ndarray
    steps: int = 1


def noises(algorithm: Algorithm, seed: int = 0) -> RandomnessCheck:
    """Checks noise from one seed for some rounds, from another seed, and from the system.

    Args:
        algorithm: The system.
        seed: The seed.

    Returns:
        The check.
    """
    reduced_algorithm = plain(algorithm)
    samples: list[NoiseSample] = []
    if reduced_algorithm.placement is not NoisePlacement.ROUND_SUM:
        of = _of_clients
    else:
        of = _of_sums if reduced_algorithm.noise_shares else _of_rounds
    sources = (
        ("seed", Keyed(seed), ROUNDS),
        ("next seed", Keyed(seed + 1), 1),
        ("system", SystemEntropy(), 1),
    )
    for name, randomness, rounds in sources:
        samples += [
            NoiseSample(f"{name}, {where}", numbers, reduced_algorithm.steps.total(1))
            for where, numbers in of(reduced_algorithm, randomness, rounds)
        ]
    faults = [text for noise in samples for text in _amount(noise)][:3]
    faults += [
        text
        for one, other in combinations_with_replacement(samples, 2)
        for text in _repeats(one, other)
    ][:3]
    summary = (
        f"{len(samples)} releases of {len(samples[0].numbers)} numbers on blank data have as much "
        "noise as stated, and no noise is used twice"
    )
    return RandomnessCheck(summary, tuple(faults))


def _with_given_clip(release: Release) -> Release:
    """Replaces a clip derived from raw values by a flat clip of the same norm."""
    return (
        replace(release, clip=Flat(release.clip.clip_norm))
        if release.clip.adapts_to == "raw"
        else release
    )


def plain(algorithm: Algorithm) -> Algorithm:
    """Reduces a system to its releases and schedule, so that a release is a known multiple of
    noise.

    Args:
        algorithm: The system.

    Returns:
        The reduced system.
    """
    reduced_algorithm = with_everyone(algorithm)
    query = algorithm.weights.query
    return replace(
        reduced_algorithm,
        local=LocalTraining(SGD(1.0)),
        steps=FixedSteps(
            STEPS
            if reduced_algorithm.placement is NoisePlacement.EVERY_STEP
            and not reduced_algorithm.noise_shares
            else 1
        ),
        samples=replace(reduced_algorithm.samples, divide_by_drawn=False)
        if reduced_algorithm.samples
        else None,
        clients=_with_given_clip(reduced_algorithm.clients),
        weights=UniformWeights() if query and not query.trusted else algorithm.weights,
        server=ServerUpdate(),
        controls=False,
        centre=None,
        columns=None,
        variant="sound",
        leaks=(),
    )


def _blank(clients: int, public: int = 0) -> TestBed:
    """Builds a test bed with one image of zeros, of which every client has two copies."""
    rows = torch.zeros(2, dtype=torch.int64)
    x, y = torch.zeros(1, INPUTS), torch.zeros(1, dtype=torch.int64)
    return TestBed(linear(INPUTS), x, y, 2, (rows,) * clients, (2,) * clients, (rows,) * public)


def _of_clients(
    algorithm: Algorithm, randomness: Randomness, rounds: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the noise of two clients over some rounds, always from the same model."""
    if algorithm.schedule and algorithm.samples:
        algorithm = replace(algorithm, samples=algorithm.schedule.now(algorithm.samples, 0, {}))
    clients = CanarySite.on(_blank(2), algorithm)
    reduced_algorithm, node = clients.algorithm, clients.node(randomness)
    try:
        for round in range(rounds):
            for client in range(2):
                (update,) = torch.from_numpy(clients.play_rounds(node, client, round, 1))
                if reduced_algorithm.placement is NoisePlacement.CLIENT_UPDATE:
                    assert reduced_algorithm.updates is not None
                    yield (
                        f"round {round + 1}, client {client}",
                        _standard(update, reduced_algorithm.updates),
                    )
                else:
                    assert reduced_algorithm.samples is not None
                    size = clients.test_bed.declared_sizes[client]
                    each = reduced_algorithm.samples.divisor_for(size) / math.sqrt(clients.steps)
                    yield (
                        f"round {round + 1}, client {client}",
                        _standard(update * each, reduced_algorithm.samples),
                    )
    finally:
        node.close()


def _of_rounds(
    algorithm: Algorithm, randomness: Randomness, rounds: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the noise of rounds in which half of the replies are lost."""
    clients = algorithm.clients.shared_by or CLIENTS
    test_bed = _blank(clients, int(algorithm.asks_public_clips))
    before, past = test_bed.flat().read(), list[Tensor]()
    missing = 0 if algorithm.clients.whole_run else clients // 2
    rounds_played = play(algorithm, test_bed, randomness, rounds, missing=missing)
    for number, observed_round in enumerate(rounds_played):
        release = observed_round.request.tasks[0].clients
        divisor = round_divisor(release, algorithm.weights, test_bed.declared_sizes)
        noise = (observed_round.state.vector - before) * divisor
        before = observed_round.state.vector
        past = [noise, *past]
        yield f"round {number + 1}", _standard(noise, release, past[1:])


def _of_sums(
    algorithm: Algorithm, randomness: Randomness, rounds: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the noise of sums over the fewest survivors, without what the server's own clients
    sent.
    """
    noise_shares = algorithm.noise_shares
    assert noise_shares is not None
    count = clients_for(noise_shares)
    missing = count - noise_shares.survivors
    rounds_played = play(algorithm, _blank(count), randomness, rounds, missing=missing)
    for number, observed_round in enumerate(rounds_played):
        release = observed_round.request.tasks[0].clients
        integer_sum = RoundSum.of_updates(release, count).integer_sum
        numbers_of = {
            reply.client: reply.numbers
            for reply in observed_round.replies[-1][missing:]
            if reply.numbers is not None
        }
        total = torch.from_numpy(honest_sum(integer_sum, noise_shares, numbers_of))
        noise = total if release.count_unit is None else total[:-1]
        yield f"round {number + 1}", _standard(release.inward(noise), release)


def stated_deviation(release: Release) -> float:
    """Computes the standard deviation that the accountant is told.

    Args:
        release: The release.

    Returns:
        The stated noise multiplier times the sensitivity, not what the release computes itself.
    """
    assert release.noise is not None
    return release.clip.vector_multiplier(release.noise.noise_multiplier) * release.sensitivity()


def _standard(noise: Tensor, release: Release, past: list[Tensor] | None = None) -> np.ndarray:
    """Divides noise by its stated deviation and undoes its correlation."""
    deviation, kind = stated_deviation(release), release.banded_noise
    if kind is not None:
        earlier_rounds = zip(kind.root.coefficients[1:], past or [], strict=False)
        noise = noise + sum(
            (float(coefficient) * earlier for coefficient, earlier in earlier_rounds),
            torch.zeros(len(noise)),
        )
        deviation *= kind.sensitivity
    assert release.noise is not None
    return release.noise.standard(noise, deviation).numpy().astype(np.float64)


def _amount(noise: NoiseSample) -> Iterator[str]:
    """Yields a fault where noise is smaller than stated, or larger because steps share it."""
    size = len(noise.numbers)
    deviation = math.sqrt(float(np.square(noise.numbers).mean()))
    score = squares_score(size * deviation**2, size)
    if score < -TOO_FAR:
        yield f"the noise of {noise.where} has {deviation:.1%} of the deviation that is stated"
    elif score > TOO_FAR and noise.steps > 1:
        yield (
            f"the noise of {noise.where} has {deviation:.1%} of the deviation that is stated: "
            "its steps share it"
        )


def _repeats(one: NoiseSample, other: NoiseSample) -> Iterator[str]:
    score = largest_correlation(one.numbers, other.numbers)
    if score > TOO_FAR:
        where = f"within {one.where}" if one is other else f"in {one.where} and {other.where}"
        yield f"noise comes again {where} ({score:.0f} deviations)"
