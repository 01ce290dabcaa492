"""Clip norms that cost no privacy: from clients whose data is public, or, as published, from a run
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
from dpfl.privacy.mechanisms.clips.clip import Clip
from dpfl.server.aggregation.aggregate import mean
from dpfl.server.aggregation.update import ServerUpdate

Train = Callable[[int, Tensor], Sequence[ClientReply]]
"""Lets the cohort of a round train a model, without clip and without noise, and returns its
replies.
"""


def of_public_updates(release: Release, replies: Sequence[ClientReply]) -> Release:
    """Sets a clip to the median of what it bounds, over updates of public clients.

    Args:
        release: The release of the clients of a round.
        replies: What public clients replied, without clip.

    Returns:
        The release with the clip of this round.
    """
    updates = [reply.update for reply in replies if reply.update is not None]
    return replace(
        release,
        clip=release.clip.adapt([_measure(update, release.clip) for update in updates]),
    )


def asking_norms(request: RoundRequest) -> RoundRequest:
    """Turns a request for training into a request for norms of gradients only.

    Args:
        request: A request to clients whose data is public.

    Returns:
        The request, whose tasks have no noise.
    """
    bare = [replace(task.samples, noise=None) if task.samples else None for task in request.tasks]
    tasks = (
        replace(task, norms=True, samples=samples)
        for task, samples in zip(request.tasks, bare, strict=True)
    )
    return replace(request, tasks=tuple(tasks))


def of_public_samples(
    samples: Release,
    clients: Release,
    replies: Sequence[ClientReply],
    placement: NoisePlacement,
) -> tuple[Release, Release]:
    """Sets the clip of samples to the median norm over gradients of public samples.

    Where the noise is on the sum of a round, the clip of updates is scaled by the same factor.

    Args:
        samples: The release of the samples in a step.
        clients: The release of the clients of a round.
        replies: What public clients replied to a request for norms.
        placement: Where the noise is added.

    Returns:
        Both releases with their new clips.
    """
    norms = [
        norm for reply in replies if reply.raw is not None for norm in reply.raw["norms"].tolist()
    ]
    new_samples = replace(samples, clip=samples.clip.adapt(norms))
    if placement is not NoisePlacement.ROUND_SUM:
        return new_samples, clients
    level = clients.clip.clip_norm * new_samples.clip.clip_norm / samples.clip.clip_norm
    return new_samples, replace(clients, clip=replace(clients.clip, clip_norm=level))  # type: ignore[type-var]


def norms_without_privacy(
    train: Train, rounds: int, start: Tensor, weights: Tensor, server: ServerUpdate
) -> list[float]:
    """Measures |x_i - x| of every update in a run of FedAvg (clipping paper, section 2.2).

    These are raw values of all clients that were drawn, which no noise covers.

    Args:
        train: Runs one round at the clients, without clip and noise.
        rounds: How many rounds the run has.
        start: The first model.
        weights: The weight of each client.
        server: The server's step.

    Returns:
        The norms, over all rounds.
    """
    vector, velocity, norms = start.clone(), torch.zeros_like(start), list[float]()
    for round in range(rounds):
        replies = train(round, vector)
        norms += [
            float(reply.update.double().norm()) for reply in replies if reply.update is not None
        ]
        vector, velocity = server.step(vector, velocity, mean(replies, weights, len(start)))
    return norms


def rounds_of(clip: Clip, budget: Budget) -> int:
    """Says how many rounds the run without privacy has, from which the published clip comes.

    Args:
        clip: The clip, which may give a number of rounds itself.
        budget: The budget of the run, whose number of rounds is the default.

    Returns:
        The number of rounds.

    Raises:
        DpflError: Neither the clip nor the budget gives a number.
    """
    if (rounds := clip.pilot_rounds or budget.rounds) is None:
        raise DpflError(
            "The published clip comes from a run without privacy of as many rounds: give "
            "budget.rounds."
        )
    return rounds


def _measure(update: Tensor, clip: Clip) -> float:
    return float(clip.norms(update[None]) if clip.own_measure else update.norm())
