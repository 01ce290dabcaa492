"""Runs one client's round on blank samples, before ledgers are made. What can fail without private
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
from dpfl.gradients.losses import checked_scores
from dpfl.lazy_import import torch
from dpfl.models.flat import evaluating
from dpfl.privacy import All, Keyed
from dpfl.privacy.units import protects_person

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.models import FlatModel
    from dpfl.run.stages.model_for_data import ModelForData
    from dpfl.server.algorithm import Algorithm

DRY_RUN = "dry run"
"""The name of the run that the client of a dry run takes part in."""

LABELS = 64
"""The most labels that are tried. Where there are more classes, the first and the last are among
them.
"""


def dry_run(model: ModelForData, algorithm: Algorithm, arithmetic: str = "exact") -> str:
    """Makes forward and backward pass, clip, noise and step on zeros with every declared label.

    Args:
        model: The model for the data of the federation. Its weights stay as they are.
        algorithm: The algorithm as it would run.
        arithmetic: "exact" or "fast", as in `dpfl.Privacy`.

    Returns:
        How the units of private steps are computed on this machine, or "" without private steps.

    Raises:
        DpflError: The model fails, or one step moves its weights out of all bounds.
    """
    shape, task = model.federation.shape, model.federation.task
    every_label = task.examples(shape[0])
    places = torch.linspace(0, len(every_label) - 1, min(len(every_label), LABELS))
    labels = every_label[places.round().long()]
    with one_thread():
        for x in _samples((len(labels), *shape), task):
            _check_scores(model.flat, x, labels, task)
            reply, path = _reply(model, algorithm, x, labels, arithmetic)
            if reply.update is not None and torch.isfinite(reply.update).all():
                return path
    raise DpflError(
        f"One step of {algorithm.name} at learning rate {algorithm.local.optimiser.rate:g}, on "
        "samples of zeros, leaves all bounds: lower the rate, or give the model other weights."
    )


def _samples(shape: tuple[int, ...], task: tasks.Task) -> tuple[Tensor, Tensor]:
    """Returns blank samples and random ones."""
    if task.reads == "tokens":
        return torch.zeros(shape, dtype=torch.int64), torch.ones(shape, dtype=torch.int64)
    return torch.zeros(shape), torch.rand(shape, generator=torch.Generator().manual_seed(0))


def _check_scores(model: FlatModel, x: Tensor, y: Tensor, task: tasks.Task) -> None:
    """Checks that the model gives as many scores as the task has."""
    try:
        with evaluating(model.module):
            scores = checked_scores(model.module(x), len(x))
    except DpflError:
        raise
    except Exception as error:  # the user's own code can fail in any way
        raise _refusal(error, tuple(x.shape[1:])) from error
    task.losses(scores, y)


def _reply(
    model: ModelForData, algorithm: Algorithm, x: Tensor, y: Tensor, arithmetic: str
) -> tuple[ClientReply, str]:
    """Computes the reply of a client without a ledger, from the model's own weights."""
    everyone = torch.arange(len(y))
    persons = everyone // 2 if protects_person(algorithm.unit) else None
    site = ClientContext(
        DRY_RUN,
        model.description,
        model.federation.task,
        ClientDatasets(x, y, (everyone,), (len(y),), persons),
        Keyed(0),
        arithmetic=arithmetic,
    )
    samples = (
        replace(algorithm.samples, sampling=All(), noise_shares=None) if algorithm.samples else None
    )
    clients = replace(algorithm.clients, noise_shares=None)
    raw, slope = algorithm.steps.asks_raw, algorithm.steps.paid_slopes > 0
    task = ClientTask(
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
    runner = ClientRunner(site)
    try:
        return runner.work(task, model.flat.read()), runner.arithmetic
    except DpflError:
        raise
    except Exception as error:
        raise _refusal(error, tuple(x.shape[1:])) from error
    finally:
        runner.close()


def _refusal(error: Exception, shape: tuple[int, ...]) -> DpflError:
    cause = f"{type(error).__name__}: {error}".splitlines()[0]
    return DpflError(
        f"The model fails on samples of the shape {shape} ({cause}): correct it, or give it others."
    )
