"""One client's round on samples of zeros, before ledgers are made: what can fail without private
data fails here, for free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpfl import tasks
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.runner import ClientRunner
from dpfl.client.task import RAW_VALUES, ClientReply, ClientTask
from dpfl.engines import one_thread
from dpfl.errors import DpflError
from dpfl.gradients.clipped import ARITHMETIC
from dpfl.gradients.losses import checked_scores
from dpfl.lazy_import import torch
from dpfl.models import Buildable
from dpfl.models.flat import evaluating
from dpfl.privacy import All, Keyed

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.models import FlatModel
    from dpfl.server.algorithm import Algorithm

LABELS = 64
"""Where there are more classes, as many of them, the first and the last among them."""


def rehearse(
    described: Buildable,
    model: FlatModel,
    algorithm: Algorithm,
    shape: tuple[int, ...],
    task: tasks.Task,
    arithmetic: str = "exact",
) -> str:  # fmt: skip
    """Forward and backward pass, clip, noise and step with every declared label; refused with the
    cause of what fails.

    Returns:
        How the units of private steps are computed on this machine, or "" where there are none.
    """
    labels = task.examples(shape[0])
    labels = labels[torch.linspace(0, len(labels) - 1, min(len(labels), LABELS)).round().long()]
    with one_thread():
        for x in _samples((len(labels), *shape), task):
            _check_scores(model, x, labels, task)
            reply, path = _reply(described, model, algorithm, x, labels, task, arithmetic)
            if reply.update is not None and torch.isfinite(reply.update).all():
                return path
    raise DpflError(
        f"One step of {algorithm.name} at learning rate {algorithm.local.optimiser.rate:g}, on "
        "samples of zeros, leaves all "
        "bounds: lower the rate, or give the model other weights."
    )


def check_arithmetic(arithmetic: str, entropy: str, nodes: bool) -> None:
    """Refuses what is neither exact nor fast, and fast arithmetic where somebody's data are at
    stake.
    """
    if arithmetic not in ARITHMETIC:
        raise DpflError(
            f"privacy.arithmetic is 'exact' or 'fast' (for simulations alone), not {arithmetic!r}."
        )
    if arithmetic == "fast" and (entropy == "system" or nodes):
        raise DpflError(
            "Fast arithmetic is for simulations: with real nodes, or privacy.entropy = 'system', "
            "leave privacy.arithmetic out."
        )


def _samples(shape: tuple[int, ...], task: tasks.Task) -> tuple[Tensor, Tensor]:
    """Of zeros, and of others where zeros give nothing."""
    if task.reads == "tokens":
        return torch.zeros(shape, dtype=torch.int64), torch.ones(shape, dtype=torch.int64)
    return torch.zeros(shape), torch.rand(shape, generator=torch.Generator().manual_seed(0))


def _check_scores(model: FlatModel, x: Tensor, y: Tensor, task: tasks.Task) -> None:
    """As many as the task has."""
    try:
        with evaluating(model.module):
            scores = checked_scores(model.module(x), len(x))
    except DpflError:
        raise
    except Exception as error:  # the user's own code can fail in any way
        raise _refusal(error, tuple(x.shape[1:])) from error
    task.losses(scores, y)


def _reply(
    described: Buildable,
    model: FlatModel,
    algorithm: Algorithm,
    x: Tensor,
    y: Tensor,
    task: tasks.Task,
    arithmetic: str,
) -> tuple[ClientReply, str]:
    """By a node without ledgers, from the model's own weights."""
    everyone = torch.arange(len(y))
    persons = everyone // 2 if algorithm.unit == "person" else None
    site = ClientContext(
        "rehearsal",
        described,
        task,
        ClientDatasets(x, y, (everyone,), (len(y),), persons),
        Keyed(0),
        arithmetic=arithmetic,
    )
    samples = (
        replace(algorithm.samples, sampling=All(), noise_shares=None) if algorithm.samples else None
    )
    clients = replace(algorithm.clients, noise_shares=None)
    raw, slope = algorithm.steps.asks_raw, algorithm.steps.extra > 0
    asked = ClientTask(
        0,
        0,
        1,
        algorithm.local,
        clients,
        samples,
        raw=raw,
        update=algorithm.updates,
        slope=slope,
        raw_values=RAW_VALUES,
    )
    node = ClientRunner(site)
    try:
        return node.work(asked, model.read()), node.arithmetic
    except DpflError:
        raise
    except Exception as error:
        raise _refusal(error, tuple(x.shape[1:])) from error
    finally:
        node.close()


def _refusal(error: Exception, shape: tuple[int, ...]) -> DpflError:
    cause = f"{type(error).__name__}: {error}".splitlines()[0]
    return DpflError(
        f"The model fails on samples of the shape {shape} ({cause}): correct it, or give it others."
    )
