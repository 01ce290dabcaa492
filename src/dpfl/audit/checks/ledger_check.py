"""Checks the ledgers of a run: every release has a debit of its own, and noise of its own."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpfl.algorithms import Algorithm
from dpfl.audit.checks.randomness_checks import RandomnessCheck
from dpfl.audit.leaks import Coupling, neighbours, with_everyone, with_releases
from dpfl.audit.test_bed import ObservedRound, TestBed, play
from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import ClientTask
from dpfl.models import scattering_linear
from dpfl.privacy import Keyed, Ledger, Randomness, SystemEntropy
from dpfl.privacy.accounting.events import Event, describe, gaussian

ROUNDS = 3


def check_ledgers(algorithm: Algorithm, seed: int = 0) -> RandomnessCheck:
    """Compares what was released in some real rounds with what was debited.

    It also checks whether two releases share noise, and whether a round that is repeated after a
    crash is the same or is paid for again.

    Args:
        algorithm: The system.
        seed: Seed of the data and of the runs.

    Returns:
        The check.
    """
    algorithm = with_everyone(algorithm)
    one, other = neighbours(algorithm, seed)
    if algorithm.centre:  # only a model that subtracts the mean asks for it
        one, other = (replace(test_bed, model=scattering_linear()) for test_bed in (one, other))
    with tempfile.TemporaryDirectory(prefix="dpfl-audit-") as name:
        folder = Path(name)
        release_counts = _release_counts(
            algorithm, one, play(algorithm, one, Keyed(seed), ROUNDS, folder / "real")
        )
        unpaid = [
            text
            for account, events in release_counts.items()
            for text in _unpaid(folder / "real" / account, events)
        ]
        coupled_algorithm = with_releases(algorithm, Coupling().of)
        first, second = (
            _noises(
                algorithm,
                test_bed,
                play(coupled_algorithm, test_bed, Keyed(seed), ROUNDS, folder / world),
            )
            for world, test_bed in (("one", one), ("other", other))
        )
        anew = [*_again(algorithm, one, Keyed(seed), folder / "keyed")]
        if (
            not algorithm.clients.whole_run
        ):  # of which nothing is shown before its checkpoint, and then it is not made again
            anew += _again(algorithm, one, SystemEntropy(), folder / "system")
    noises = [*first.values(), *(noise for (_, client), noise in second.items() if client == 0)]
    repeats = sum(_same_noise(a, b) for a, b in combinations(noises, 2))
    repeat_faults = (
        [
            f"{repeats} pairs of {len(noises)} releases share their noise: their difference shows "
            "the data"
        ]
        if repeats
        else []
    )
    count = sum(sum(events.values()) for events in release_counts.values())
    summary = (
        f"each of {count} releases has its own debit and its own noise; after a crash, each is the "
        "same value or is paid for again"
    )
    return RandomnessCheck(summary, (*unpaid, *repeat_faults, *anew), count)


def _again(
    algorithm: Algorithm, test_bed: TestBed, randomness: Randomness, folder: Path
) -> list[str]:
    """Replays round 1 from the same model and ledgers, as after a crash. Other noise makes another
    release, which must be paid for again.
    """
    first, second = (play(algorithm, test_bed, randomness, 1, folder) for _ in range(2))
    release_counts = _release_counts(algorithm, test_bed, first)
    same = _same_values(_released_values(algorithm, first), _released_values(algorithm, second))
    if algorithm.noise_shares and same:
        return [
            "numbers of a secure sum that are made again have the same noise: sums over other "
            "clients show one of them"
        ]
    if not same:
        release_counts = {
            account: {event: 2 * count for event, count in events.items()}
            for account, events in release_counts.items()
        }
    source = "with noise of the seed" if randomness.repeatable else "with noise of the system"
    return [
        f"made again after a crash {source}: {text}"
        for account, events in release_counts.items()
        for text in _unpaid(folder / account, events)
    ]


def _released_values(algorithm: Algorithm, rounds: list[ObservedRound]) -> list[np.ndarray]:
    """Lists all that was released in these rounds: updates and answers, or the models made of the
    sums.
    """
    if algorithm.trusts_server:
        return [observed_round.state.vector.numpy() for observed_round in rounds]
    replies = [
        reply
        for observed_round in rounds
        for answers in observed_round.replies
        for reply in answers
    ]
    if algorithm.noise_shares:
        return [reply.numbers for reply in replies if reply.numbers is not None]
    answers = [value for reply in replies for value in (reply.raw or {}).values()]
    return [*(reply.update.numpy() for reply in replies if reply.update is not None), *answers]


def _same_values(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def _release_counts(
    algorithm: Algorithm, test_bed: TestBed, rounds: list[ObservedRound]
) -> dict[str, dict[Event, int]]:
    """Counts by account how often each event was released."""
    if algorithm.trusts_server:
        return {"federation.sqlite": _of_rounds(algorithm, rounds, len(test_bed.clients))}
    accounts: dict[str, dict[Event, int]] = {}
    for observed_round in rounds:
        for order, replies in zip(observed_round.requests, observed_round.replies, strict=True):
            for task, reply in zip(order.tasks, replies, strict=True):
                if reply.update is None and reply.raw is None and reply.numbers is None:
                    continue
                if reply.client < len(test_bed.clients):
                    account = accounts.setdefault(f"client-{reply.client:05d}.sqlite", {})
                    event, count = _of_task(task, test_bed.declared_sizes[reply.client])
                    account[event] = account.get(event, 0) + count
    return accounts


def _of_task(task: ClientTask, size: int) -> tuple[Event, int]:
    """Computes what a reply to this task costs, and how often."""
    if task.query:
        return task.query.event, 1
    if task.update:
        return task.update.event(1), 1
    if task.samples is None:
        assert task.secure_sum is not None
        return task.clients.event(task.secure_sum.clients), 1
    return gaussian(0.0) if task.raw else task.samples.event(size), task.steps + task.slope


def _of_rounds(algorithm: Algorithm, rounds: list[ObservedRound], clients: int) -> dict[Event, int]:
    counts: dict[Event, int] = {}
    for observed_round in rounds:
        event = observed_round.request.tasks[0].clients.event(clients)
        counts[event] = 1 if algorithm.clients.whole_run else counts.get(event, 0) + 1
    return counts


def _unpaid(path: Path, release_counts: dict[Event, int]) -> list[str]:
    if not path.exists():
        return [f"{path.stem} has no ledger, but released {sum(release_counts.values())} times"]
    ledger = Ledger.read(path)
    try:
        events = ledger.spending()
    finally:
        ledger.close()
    return [
        f"{path.stem} debited {events.get(event, 0)} of {count} releases ({describe(event)})"
        for event, count in release_counts.items()
        if events.get(event, 0) < count
    ]


def _noises(
    algorithm: Algorithm, test_bed: TestBed, rounds: list[ObservedRound]
) -> dict[tuple[int, int], Tensor]:
    """Collects the noise by round and client (0 is the server). The releases of coupled rounds are
    noise and nothing else.
    """
    if algorithm.noise_shares:
        return {
            (number, reply.client): torch.from_numpy(
                reply.numbers.view(reply.numbers.dtype.str.replace("u", "i"))
            ).double()
            for number, observed_round in enumerate(rounds)
            for reply in observed_round.replies[-1]
            if reply.numbers is not None
        }
    if algorithm.placement is not NoisePlacement.ROUND_SUM:
        return {
            (number, reply.client): reply.update
            for number, observed_round in enumerate(rounds)
            for replies in observed_round.replies
            for reply in replies
            if reply.update is not None
        }
    vectors = [test_bed.flat().read(), *(observed_round.state.vector for observed_round in rounds)]
    return {(number, 0): vectors[number + 1] - vectors[number] for number in range(len(rounds))}


def _same_noise(one: Tensor, other: Tensor) -> bool:
    """Says whether two vectors have the same direction to the last digits. Independent noise is far
    from that.
    """
    return bool(torch.nn.functional.cosine_similarity(one, other, dim=0).abs() > 0.999)
