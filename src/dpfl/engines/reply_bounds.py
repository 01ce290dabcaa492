"""Bounds the length of an honest reply by what is public: clip, noise, steps, declared size.

A reply beyond its bound is dropped. Where the server adds the noise, that is needed for privacy:
next to a vector of length 1e6, a float32 sum rounds what the others sent to a grid that the noise
was not calibrated for. Elsewhere it keeps one node from ruining everybody's run.

The length of a Gaussian vector of d numbers with standard deviation s is at most s (sqrt(d) + t)
but with probability exp(-t^2 / 2); `NOISE_TAIL` is t.
"""

from __future__ import annotations

import math

from torch import Tensor

from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import ClientReply, ClientTask, rounding_sensitivity
from dpfl.privacy import Release
from dpfl.privacy.mechanisms.clips.vector_clipping import measure_norms
from dpfl.privacy.queries.query import NOISE_TAIL, UNDECLARED_FACTOR

ROUNDING = 1.001
"""A clip is computed with float32 sums, which may be off by this factor."""
LONGEST = 1e12
"""The bound where there is no other: no model is that long, and sums of such vectors are finite."""


def bound_violation(
    task: ClientTask,
    reply: ClientReply,
    vector: Tensor,
    declared_size: int,
    correction: Tensor | None,
) -> bool:
    """Decides whether a reply is longer than any honest node's.

    Args:
        task: The task.
        reply: The reply.
        vector: The model that the task started from.
        declared_size: The number of units that the node declared.
        correction: What was added to the node's gradients, if anything.

    Returns:
        Whether the reply is to be dropped.
    """
    if task.query and reply.raw is not None:
        return not task.query.admits(reply.raw["answer"], declared_size)
    if reply.update is None:
        return False
    release = task.placed_release.release_at(NoisePlacement.CLIENT_UPDATE, NoisePlacement.ROUND_SUM)
    bound = (
        _updates(task, release, vector, correction)
        if release
        else _steps(task, vector.numel(), declared_size, correction)
    )
    return not measure_norms(reply.update, release.clip if release else None) <= min(bound, LONGEST)


def _updates(
    task: ClientTask, release: Release, vector: Tensor, correction: Tensor | None
) -> float:
    """Bounds an update inside a clip, with the noise that is added to it. A clip of the model
    itself bounds the update by the clip and the length of the model that was sent.
    """
    start = float(vector.double().norm()) if release.clip.bounds == "model" else 0.0
    noise = 0.0
    if release.is_update:
        excess = rounding_sensitivity(task, vector, correction)
        noise = release.weight_covering(excess) * _noise(release, 2 * vector.numel())
    elif release.shared_by:
        noise = _noise(release, 2 * vector.numel()) / math.sqrt(release.shared_by)
    return ROUNDING * (release.clip.clip_norm + start + noise)


def _steps(task: ClientTask, size: int, declared_size: int, correction: Tensor | None) -> float:
    """Bounds plain SGD on means of clipped gradients. Other training has no bound."""
    local, samples = task.local, task.placed_release.release_at(NoisePlacement.EVERY_STEP)
    if samples is None or not local.optimiser.linear or local.prox or correction is not None:
        return math.inf
    if samples.clip.bounds not in ("norm", "layers"):
        return math.inf
    most_units = UNDECLARED_FACTOR * samples.sampling.expected_size(declared_size)
    total = most_units * samples.clip.clip_norm + 2 * _noise(samples, size)
    return task.steps * local.optimiser.rate * total / samples.divisor_for(declared_size)


def _noise(release: Release, size: int) -> float:
    return release.stddev() * (math.sqrt(size) + NOISE_TAIL)
