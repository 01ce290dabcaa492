"""Checks how far one unit truly moves the value that its noise is calibrated for, on real clients
and coordinators.

Noise is almost zero here. Neighbours start from the worst known case (far away, on either side, or
blank) and change at random as long as that moves them further apart. If they end further apart than
the release states, its noise is too little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from dpfl.algorithms import Algorithm
from dpfl.audit.checks.noise_check import plain
from dpfl.audit.checks.randomness_checks import RandomnessCheck
from dpfl.audit.measurements.canaries import LITTLE, CanarySite, one_canary
from dpfl.audit.sums import clients_for
from dpfl.audit.test_bed import TestBed, linear, play
from dpfl.client.noise_placement import NoisePlacement
from dpfl.privacy import Keyed, Release
from dpfl.server.aggregation.weights import round_divisor
from dpfl.server.steps.policy import FixedSteps

TRIES, CLIENTS, INPUTS, FAR = 25, 4, 8, 1e3
ROUNDING = 1 + 1e-4


def check_sensitivity(algorithm: Algorithm, seed: int = 0) -> RandomnessCheck:
    """Searches for neighbours that move a release further than it states.

    Args:
        algorithm: The system.
        seed: Seed of the search.

    Returns:
        The check. The distance is relative to the sensitivity, in the measure of the clip.
    """
    if algorithm.placement is NoisePlacement.ROUND_SUM:
        count = clients_for(algorithm.noise_shares, CLIENTS)
        share, how = (
            max(_of_rounds(algorithm, count)),
            f"each of {count} clients of unlike sizes in its turn",
        )
    else:
        share, how = (
            _search_share(algorithm, torch.Generator().manual_seed(seed)),
            f"the worst known, and {TRIES} changes of it",
        )
    sentence = (
        f"one {algorithm.unit} changes the release by {share:.2%} of what the noise covers ({how})"
    )
    return RandomnessCheck(sentence, (sentence,) if share > ROUNDING else ())


def _search_share(algorithm: Algorithm, rng: torch.Generator) -> float:
    """Searches for the largest share of the sensitivity that one sample of a client, or all that it
    has, can move. Steps are tried one by one, updates as they are trained.
    """
    reduced_algorithm = (
        replace(plain(algorithm), steps=FixedSteps(1))
        if algorithm.placement is NoisePlacement.EVERY_STEP
        else algorithm
    )
    worst = one_canary(replace(reduced_algorithm, schedule=None))
    share = apart(worst)
    for _ in range(TRIES):
        x, change = worst.test_bed.x, FAR ** float(torch.rand(1, generator=rng))
        trial = replace(
            worst,
            test_bed=replace(worst.test_bed, x=x + change * torch.randn(x.shape, generator=rng)),
        )
        if (further := apart(trial)) > share:
            share, worst = further, trial
    return share


def apart(clients: CanarySite) -> float:
    """Measures the distance between two neighbours' updates.

    Args:
        clients: Two clients: one with the unit and one without it.

    Returns:
        The distance in the measure of the clip, over the sensitivity.
    """
    reduced_algorithm, release = clients.algorithm, clients.algorithm.release
    assert release is not None
    difference = torch.from_numpy(clients.signal())
    if reduced_algorithm.placement is NoisePlacement.CLIENT_UPDATE:
        return _measure(difference, release) / release.sensitivity()
    each = release.divisor_for(clients.test_bed.declared_sizes[0])
    factor = 2 if release.sampling.constant_size else 1
    return _measure(difference * each, release) / (factor * release.sensitivity())


def _measure(difference: Tensor, release: Release) -> float:
    """Measures a difference in the clip's norm."""
    clip = release.clip
    return float(clip.norms(difference[None]) if clip.own_measure else difference.double().norm())


def _of_rounds(algorithm: Algorithm, count: int) -> Iterator[float]:
    """Measures how far replacing one client moves the round's sum."""
    reduced_algorithm = replace(plain(algorithm), schedule=None).with_noise(LITTLE)
    for client in range(count):
        sums = []
        for far in (client, None):
            test_bed = _clients(far, count, reduced_algorithm.asks_public_clips)
            (observed_round,) = play(reduced_algorithm, test_bed, Keyed(0), 1)
            release = observed_round.request.tasks[0].clients
            divisor = round_divisor(release, reduced_algorithm.weights, test_bed.declared_sizes)
            sums.append((observed_round.state.vector - test_bed.flat().read()) * divisor)
        yield _measure(sums[0] - sums[1], release) / release.sensitivity()


def _clients(far: int | None, count: int, public: bool) -> TestBed:
    """Builds a test bed in which all clients but one are blank. The last client is the largest, and
    labels differ from client to client.
    """
    sizes = [2 * (client + 1) for client in range(count + public)]
    rows = torch.arange(sum(sizes)).split(sizes)
    x, y = torch.zeros(sum(sizes), INPUTS), torch.zeros(sum(sizes), dtype=torch.int64)
    for client, rows_of in enumerate(rows):
        y[rows_of[: client + 1]] = 1
    if public:
        x[rows[-1]] = 1.0
    if far is not None:
        x[rows[far]] = FAR
        y[rows[far]] = far % 2
    return TestBed(linear(INPUTS), x, y, 2, rows[:count], sizes[:count], rows[count:])
