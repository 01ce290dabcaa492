"""How long a reply can be that was made as it was ordered, by what is public: clip, noise, steps
and declared sizes.

Where the server adds the noise this is for privacy: beside a vector of millions a float32 sum
rounds what others sent to a grid that its noise is not for. Elsewhere it keeps one node from ending
everybody's run.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from dpfl.client.task import ClientReply, ClientTask, rounding_sensitivity
from dpfl.privacy import Release
from dpfl.privacy.mechanisms.clip import measure_norms
from dpfl.privacy.mechanisms.release import UpdateRelease
from dpfl.privacy.queries.answers import AnyQuery
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.metric import MetricQuery

ROUNDED = 1.001
"""A clip holds by float32 sums."""
TAIL = 12.0
"""Deviations by which the length of noise is never above that of its mean: by the 72nd power of
e.
"""
FEWER = 100.0
"""Times that a node may have more units than it declares."""
LONGEST = 1e12
"""Where nothing else bounds an update: no model is that long, and sums of such are finite."""


def bound_violation(
    task: ClientTask, reply: ClientReply, vector: Tensor, declared: int, correction: Tensor | None
) -> bool:
    """Whether no honest node that declared so many units, and was sent this vector, would have
    replied so.
    """
    if task.query and reply.raw is not None:
        return not _answers(task.query, reply.raw["answer"], declared)
    if reply.update is None:
        return False
    release = _of_updates(task)
    bound = (
        _updates(task, release, vector, correction)
        if release
        else _steps(task, vector.numel(), declared, correction)
    )
    return not measure_norms(reply.update, release.clip if release else None) <= min(bound, LONGEST)


def _of_updates(task: ClientTask) -> Release | None:
    """The release whose clip is of whole updates, if noise is added to them, here or there."""
    if task.update and task.update.private:
        return task.update
    return task.clients if task.clients.private else None


def _updates(
    task: ClientTask, release: Release, vector: Tensor, correction: Tensor | None
) -> float:
    """Inside the clip, which may be of the model and not of its difference to this one, with the
    noise that is added there.
    """
    start = float(vector.double().norm()) if release.clip.bounds == "model" else 0.0
    noise = 0.0
    if isinstance(release, UpdateRelease):
        noise = (
            1 + rounding_sensitivity(task, vector, correction) / release.sensitivity_bound
        ) * _noise(release, 2 * vector.numel())
    elif release.shared_by:
        noise = _noise(release, 2 * vector.numel()) / math.sqrt(release.shared_by)
    return ROUNDED * (release.clip.clip_norm + start + noise)


def _steps(task: ClientTask, size: int, declared: int, correction: Tensor | None) -> float:
    """Of plain SGD on means of clipped gradients; of other ways there is no bound."""
    samples, local = task.samples, task.local
    if (
        samples is None
        or not samples.private
        or not local.optimiser.linear
        or local.prox
        or correction is not None
    ):
        return math.inf
    if samples.clip.bounds not in ("norm", "layers"):
        return math.inf
    each = FEWER * samples.clip.clip_norm + 2 * _noise(
        samples, size
    ) / samples.sampling.expected_size(declared)
    return task.steps * local.optimiser.rate * each


def _noise(release: Release, size: int) -> float:
    return release.stddev() * (math.sqrt(size) + TAIL)


def _answers(survey: AnyQuery, answer: np.ndarray, declared: int) -> bool:
    """Shares of labels, or the noisy mean of what each unit counts with."""
    if isinstance(survey, LabelQuery):
        return bool(
            ((answer >= 0) & (answer <= ROUNDED)).all() and abs(answer.sum() - 1) < ROUNDED - 1
        )
    widths = {ColumnQuery: lambda one: one.width, MetricQuery: lambda one: one.numbers + one.cells}
    width = widths.get(type(survey), lambda one: answer.size)(survey)
    bound = survey.bound if isinstance(survey, ColumnQuery | MetricQuery) else math.sqrt(width)
    longest = bound * (FEWER + 2 * survey.noise_multiplier * (math.sqrt(width) + TAIL) / declared)
    return answer.size == width and math.hypot(*answer.tolist()) <= longest
