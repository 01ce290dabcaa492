"""The books of a run: every release has a debit of its own in a ledger, and noise of its own."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from dpfl.algorithms import Algorithm
from dpfl.audit.leaks import Coupling, neighbours
from dpfl.audit.rounds import Ground, Round, play
from dpfl.privacy import Keyed, Ledger
from dpfl.privacy.events import Event, describe

ROUNDS = 3


@dataclass(frozen=True)
class Books:
    """What is wrong with them, in sentences; nothing where they are in order."""

    releases: int
    faults: tuple[str, ...]


def books(algorithm: Algorithm, seed: int = 0) -> Books:
    """A few real rounds with ledgers: what was released against what was debited, and whether two releases share their noise."""
    one, other = neighbours(algorithm, seed)
    with tempfile.TemporaryDirectory(prefix="dpfl-audit-") as name:
        folder = Path(name)
        rounds = play(algorithm, one, Keyed(seed), ROUNDS, folder / "real")
        made = algorithm.fitted(one.flat().layout)
        expected = _released(made, rounds, len(one.clients))
        unpaid = [text for account, events in expected.items() for text in _unpaid(folder / "real" / account, events)]
        coupled = Coupling().algorithm(algorithm)
        noises = [
            noise
            for number, ground in enumerate((one, other))
            for noise in _noises(play(coupled, ground, Keyed(seed), ROUNDS, folder / f"noise-{number}"), ground, algorithm)
        ]
    shared = sum(_same_noise(first, second) for first, second in combinations(noises, 2))
    reused = [f"{shared} pairs of {len(noises)} releases share their noise: their difference shows the data"] if shared else []
    return Books(sum(sum(events.values()) for events in expected.values()), (*unpaid, *reused))


def _released(algorithm: Algorithm, rounds: list[Round], clients: int) -> dict[str, dict[Event, int]]:
    """By account: how often each event was seen to leave."""
    if algorithm.scale == "round":
        return {"federation.sqlite": {algorithm.event(clients): len(rounds)}}
    found: dict[str, dict[Event, int]] = {}
    for played in rounds:
        for order, replies in zip(played.orders, played.replies, strict=True):
            for task, reply in zip(order.tasks, replies, strict=True):
                if reply.update is None and reply.raw is None:
                    continue
                account = found.setdefault(f"client-{reply.client:05d}.sqlite", {})
                event = task.survey.event if task.survey else algorithm.event(0)
                count = task.steps if algorithm.scale == "step" and not task.survey else 1
                account[event] = account.get(event, 0) + count
    return found


def _unpaid(path: Path, released: dict[Event, int]) -> list[str]:
    if not path.exists():
        return [f"{path.stem} has no ledger, but released {sum(released.values())} times"]
    ledger = Ledger.read(path)
    try:
        spent = ledger.spent()
    finally:
        ledger.close()
    return [
        f"{path.stem} debited {spent.get(event, 0)} of {count} releases ({describe(event)})"
        for event, count in released.items()
        if spent.get(event, 0) < count
    ]


def _noises(rounds: list[Round], ground: Ground, algorithm: Algorithm) -> list[Tensor]:
    """The releases of coupled rounds are noise and nothing else: those of every client, or of the server."""
    if algorithm.scale != "round":
        order_replies = [replies for played in rounds for replies in played.replies]
        return [reply.update for replies in order_replies for reply in replies if reply.update is not None]
    vectors = [ground.flat().read(), *(played.state.vector for played in rounds)]
    return [after - before for before, after in zip(vectors, vectors[1:], strict=False)]


def _same_noise(one: Tensor, other: Tensor) -> bool:
    """The same direction to the last digits; independent noise is far from it."""
    return bool(torch.nn.functional.cosine_similarity(one, other, dim=0).abs() > 0.999)
