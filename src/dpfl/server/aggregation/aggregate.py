"""Turns the replies of a round into one weighted sum or mean, with the server's noise.

    >>> first, last = torch.tensor([1.0, 1.0]), torch.tensor([3.0, 1.0])
    >>> replies = [ClientReply(0, first), ClientReply(2, last)]       # client 1 did not answer
    >>> mean(replies, weights=torch.tensor([1.0, 1.0, 2.0]), size=2)  # (1 first + 2 last) / 3
    tensor([2.3333, 1.0000])

For updates d_i with weights w_i, a round goes through these functions in this order:

1. `select_usable` drops refusals, failures and updates with a `reply_fault` (a wrong shape, or a
   number that is not finite), and keeps one line about each of them.
2. Where updates carry their own noise, `mean` gives sum_i w_i d_i / sum_i w_i over those who
   replied.
3. Where the noise is on the sum, `weighted_sum` gives sum_i w_i d_i. `release_name` then names this
   sum, and the name keys the noise of `noisy_sum`, or of `correlated_sum` in DP-FTRL.
4. `noisy_inside_fraction` counts, also with noise, how many updates were not clipped. A clip that
   adapts follows this fraction.

All of these are pure functions. `mean_update.py` calls them, divides the sum by a number that was
fixed before the draw, and debits the ledger. Secure sums are in `round_sum.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpfl.client.task import ClientReply
from dpfl.codec import digest_of
from dpfl.errors import DivergenceError, DpflError
from dpfl.lazy_import import torch
from dpfl.privacy import Release
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise

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
    """Adds noise to the weighted sum of a round, for the largest weight, 1, whoever replied.

    Where clients share the noise, their shares are in the sum already, and the server adds those of
    the clients that are missing.

    Args:
        total: The weighted sum of the replies that count.
        replies: How many replies are in the sum.
        release: The release of the clients of a round.
        rng: Draws the noise.

    Returns:
        The noisy sum.
    """
    share = max(0.0, 1 - replies / release.shared_by) if release.shared_by else 1.0
    return release.add_noise(total, rng, share=share)


def correlated_sum(
    total: Tensor, noise: BandedNoise, release: Release, past: Tensor, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Adds noise that takes back part of the noise of earlier rounds (DP-FTRL).

    Args:
        total: The weighted sum of the replies that count.
        noise: The correlation of the rounds' noise.
        release: The release of the clients of a round.
        past: The noise of earlier rounds that later ones take back, the latest first, one per row.
        rng: Draws the noise that is new in this round.

    Returns:
        The noisy sum, and the noise to remember for the next round, the latest first.
    """
    current = noise.correlate(release.add_noise(torch.zeros_like(total), rng), list(past))
    memory = noise.retained_noise([current, *past])
    return (
        release.add_precomputed_noise(total, current),
        torch.stack(memory) if memory else past,
    )


def noisy_inside_fraction(
    replies: Sequence[ClientReply], release: Release, expected_size: float, rng: np.random.Generator
) -> float:
    """Estimates the fraction of clients that were not clipped (Andrew et al. 2021).

    Client i reports b_i = 1 where its update lies within the clip, else 0. The estimate is the
    noisy sum of b_i - 1/2 over the expected cohort, plus 1/2.

    Args:
        replies: The replies that count.
        release: The release of the clients, with the noise of the count.
        expected_size: The expected size of the cohort.
        rng: Draws the noise of the count.

    Returns:
        The fraction. Noise can put it below 0 or above 1.
    """
    return (
        release.add_noise_to_count(sum(reply.inside - 0.5 for reply in replies), rng)
        / expected_size
        + 0.5
    )


def release_name(release: Release, vector: Tensor, total: Tensor, inside: int) -> str:
    """Names a noisy sum by its value and by how it is hidden.

    The name keys the noise. If it did not depend on the release, one draw could be scaled for two
    releases of one sum, and their difference would give the sum away.

    Args:
        release: The release of the clients of a round.
        vector: The global model that the round started from.
        total: The sum before noise.
        inside: How many updates lay within the clip.

    Returns:
        A digest of all four.
    """
    numbers = (tensor.contiguous().numpy().data for tensor in (vector, total))
    return f"{digest_of(release, *numbers)}-{inside}"


def select_usable(
    replies: Sequence[ClientReply], round: int, faulty: Callable[[ClientReply], str]
) -> tuple[list[ClientReply], list[str]]:
    """Separates the replies that count from those that were refused, failed or have a fault.

    Args:
        replies: The replies of a round.
        round: The number of the round, from 1.
        faulty: Says what is wrong with a reply; empty where nothing is.

    Returns:
        The replies that count, and one line for each other reply that says why it does not.

    Raises:
        DivergenceError: A client's loss is not a finite number.
        DpflError: No reply can be used, and no client refused.
    """
    good, complaints = list[ClientReply](), list[str]()
    for reply in replies:
        if reply.diverged:
            raise DivergenceError(
                f"Training diverged at client {reply.client} in round {round}: {reply.failure} "
                "The last good checkpoint is kept; lower the learning rate, then start anew."
            )
        if problem := reply.refusal or reply.failure or faulty(reply):
            complaints.append(f"round {round}, client {reply.client}: {problem}")
        else:
            good.append(reply)
    if replies and not good and not any(reply.refusal for reply in replies):
        causes = dict.fromkeys(line.split(": ", 1)[1] for line in complaints)
        raise DpflError(f"No reply of round {round} can be used: {'; '.join(causes)}.")
    return good, complaints


def reply_fault(reply: ClientReply, size: int) -> str:
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
