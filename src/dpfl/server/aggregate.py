"""From replies to one step of the global model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpfl.client.task import ClientReply
from dpfl.codec import digest_of
from dpfl.errors import Diverged, DpflError
from dpfl.lazy_import import torch
from dpfl.privacy import Release
from dpfl.privacy.mechanisms.matrix_release import BandedNoise

if TYPE_CHECKING:
    from torch import Tensor


def weighted_sum(replies: Sequence[ClientReply], weights: Tensor, size: int) -> Tensor:
    """Sums the updates, each times its client's weight.

    The sum is in float64 and in the order of the cohort, so it does not depend on who answered
    first.

    Args:
        replies: The replies that count.
        weights: The weight of each client.
        size: How many numbers an update has.

    Returns:
        sum_i w_i d_i in float64.
    """
    total = torch.zeros(size, dtype=torch.float64)
    for reply in replies:
        if reply.update is not None:
            total.add_(reply.update, alpha=float(weights[reply.client]))
    return total


def mean(replies: Sequence[ClientReply], weights: Tensor, size: int) -> Tensor:
    """Computes the weighted mean over those who replied.

    Where replies carry their own noise this is post-processing.

    Args:
        replies: The replies that count.
        weights: The weight of each client.
        size: How many numbers an update has.

    Returns:
        The mean; 0 where nobody replied.
    """
    share = sum(float(weights[reply.client]) for reply in replies)
    return weighted_sum(replies, weights, size).div_(share).float() if share else torch.zeros(size)


def noisy_sum(total: Tensor, replies: int, release: Release, rng: np.random.Generator) -> Tensor:
    """The weighted sum with noise for the largest weight, 1, whoever replied.

    Where clients add the noise themselves, the server adds what the missing ones did not.
    """
    share = max(0.0, 1 - replies / release.shared_by) if release.shared_by else 1.0
    return release.add_noise(total, rng, share=share)


def correlated_sum(
    total: Tensor, noise: BandedNoise, release: Release, past: Tensor, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """The sum with noise that takes back part of the `past`, and the noise to remember, the latest
    first.
    """
    found = noise.correlate(release.add_noise(torch.zeros_like(total), rng), list(past))
    kept = noise.retained_noise([found, *past])
    return release.add_precomputed_noise(total, found), torch.stack(kept) if kept else past


def noisy_inside_fraction(
    replies: Sequence[ClientReply], release: Release, expected: float, rng: np.random.Generator
) -> float:
    """The fraction of clients that were not clipped, from the noisy sum of b - 1/2 (Andrew et al.
    2021).
    """
    return (
        release.add_noise_to_count(sum(reply.inside - 0.5 for reply in replies), rng) / expected
        + 0.5
    )


def release_name(release: Release, vector: Tensor, total: Tensor, inside: int) -> str:
    """Of the value and of how it is hidden: one draw, scaled for two releases of one sum, would
    give the sum away.
    """
    numbers = (tensor.contiguous().numpy().data for tensor in (vector, total))
    return f"{digest_of(release, *numbers)}-{inside}"


def usable(
    replies: Sequence[ClientReply], round: int, faulty: Callable[[ClientReply], str]
) -> tuple[list[ClientReply], list[str]]:
    """Those that count, and why the others do not; a client whose loss is not a number ends the
    run, and so does a round that nobody answers."""
    good, lost = list[ClientReply](), list[str]()
    for reply in replies:
        if reply.diverged:
            raise Diverged(
                f"Training diverged at client {reply.client} in round {round}: {reply.failed} "
                "The last good checkpoint is kept; lower the learning rate, then start anew."
            )
        if problem := reply.refused or reply.failed or faulty(reply):
            lost.append(f"round {round}, client {reply.client}: {problem}")
        else:
            good.append(reply)
    if replies and not good and not any(reply.refused for reply in replies):
        causes = dict.fromkeys(line.split(": ", 1)[1] for line in lost)
        raise DpflError(f"No reply of round {round} can be used: {'; '.join(causes)}.")
    return good, lost


def fault(reply: ClientReply, size: int) -> str:
    """Says what is wrong with an update.

    Args:
        reply: The reply.
        size: How many numbers an update has.

    Returns:
        A sentence; empty where nothing is wrong.
    """
    update = reply.update
    if update is None or update.shape != (size,):
        return "its update has the wrong shape and was dropped"
    # A sum that is finite has finite terms; one that is not may also have overflowed.
    finite = torch.isfinite(update.sum()) or torch.isfinite(update).all()
    return "" if finite else "its update is not finite and was dropped"
