"""Clip levels that nobody pays for: from clients whose data is public, or, as published, from a run
without privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import ClientReply, RoundRequest
from dpfl.errors import DpflError
from dpfl.privacy import Budget, Release
from dpfl.privacy.mechanisms.clip import Clip
from dpfl.server.aggregate import mean
from dpfl.server.update import ServerUpdate

Trained = Callable[[int, Tensor], Sequence[ClientReply]]
"""What the cohort of a round answers to a model, without clip and without noise."""


def of_public_updates(release: Release, replies: Sequence[ClientReply]) -> Release:
    """The median of what the clip bounds, over updates of public clients."""
    updates = [reply.update for reply in replies if reply.update is not None]
    return replace(
        release,
        clip=release.clip.adapt([_measured(update, release.clip) for update in updates]),
    )


def asking_norms(order: RoundRequest) -> RoundRequest:
    """The order to say the norms of gradients, and nothing else; for clients whose data is
    public.
    """
    bare = [replace(task.samples, noise=None) if task.samples else None for task in order.tasks]
    tasks = (
        replace(task, norms=True, samples=samples)
        for task, samples in zip(order.tasks, bare, strict=True)
    )
    return replace(order, tasks=tuple(tasks))


def of_public_samples(
    samples: Release,
    clients: Release,
    replies: Sequence[ClientReply],
    placement: NoisePlacement,
) -> tuple[Release, Release]:
    """The median over gradients of public samples; a private clip of updates is one of so many
    steps, and follows it.
    """
    norms = [
        norm for reply in replies if reply.raw is not None for norm in reply.raw["norms"].tolist()
    ]
    found = replace(samples, clip=samples.clip.adapt(norms))
    if placement is not NoisePlacement.ROUND_SUM:
        return found, clients
    level = clients.clip.clip_norm * found.clip.clip_norm / samples.clip.clip_norm
    return found, replace(clients, clip=replace(clients.clip, clip_norm=level))  # type: ignore[type-var]


def norms_without_privacy(
    trained: Trained, rounds: int, start: Tensor, weights: Tensor, server: ServerUpdate
) -> list[float]:  # fmt: skip
    """|x_i - x| of every update in so many rounds of FedAvg (clipping paper, section 2.2): raw
    values of all who were drawn.
    """
    vector, velocity, norms = start.clone(), torch.zeros_like(start), list[float]()
    for round in range(rounds):
        replies = trained(round, vector)
        norms += [
            float(reply.update.double().norm()) for reply in replies if reply.update is not None
        ]
        vector, velocity = server.step(vector, velocity, mean(replies, weights, len(start)))
    return norms


def rounds_of(clip: Clip, budget: Budget) -> int:
    """As many as the run itself has, unless said otherwise."""
    if (rounds := getattr(clip, "rounds", None) or budget.rounds) is None:
        raise DpflError(
            "The published clip comes from a run without privacy of as many rounds: give "
            "budget.rounds."
        )
    return rounds


def _measured(update: Tensor, clip: Clip) -> float:
    return float(clip.norms(update[None]) if clip.own_measure else update.norm())
