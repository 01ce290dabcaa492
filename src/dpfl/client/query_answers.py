"""Answers private queries: questions about a client's data, beside the rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from dpfl.client.dataset import ROWS, ClientDataset
from dpfl.client.descent.objectives import Generator
from dpfl.client.module_randomness import drawing_from
from dpfl.client.task import ClientReply, ClientTask
from dpfl.client.workspace import Workspace
from dpfl.gradients.mixing import refuse_mixing
from dpfl.gradients.self_test import SelfTest
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models.flat import evaluating
from dpfl.models.row_sizes import InvariantSizes, padded_chunks
from dpfl.tasks.noisy import count_outcomes


def answer_query(
    workspace: Workspace, task: ClientTask, vector: Tensor, generator: Generator
) -> ClientReply:
    """Answers a private query.

    Args:
        workspace: The model and the data.
        task: The task, with a query.
        vector: The model, which a metric is about.
        generator: Random generators of the released value, by purpose.

    Returns:
        The noisy answer; with terms of a secure sum, the client's part of that sum.
    """
    query, terms, shares = task.query, task.secure_sum, task.noise_shares
    assert query is not None
    data, rng = _queried_data(workspace, task, vector), generator("survey")
    with drawing_from(generator("survey module")):
        if shares and terms and query.summable:
            numbers = query.shared_answer(data, shares, terms.bound, terms.clients, rng)
            return ClientReply(task.client, numbers=numbers)
        return ClientReply(task.client, raw={"answer": query.answer(data, rng)})


def _queried_data(workspace: Workspace, task: ClientTask, vector: Tensor) -> ClientDataset:
    context = workspace.context
    workspace.model.load(vector)
    if task.asks_metric:
        refuse_mixing(workspace.model, context.data.x[:0])
    outcomes = outcomes_of(workspace)
    return replace(context.dataset(task), classes=context.task.classes, outcomes=outcomes)


def outcomes_of(workspace: Workspace) -> Callable[[Tensor, Tensor, float], Tensor]:
    """Makes the function by which a metric counts samples under the model that is loaded.

    It works in chunks in which a sample counts with the same numbers in every batch.

    Args:
        workspace: The model.

    Returns:
        A function from samples, labels and the largest loss to (rows, n).
    """
    model, task = workspace.model, workspace.context.task

    def outcomes(x: Tensor, y: Tensor, most: float) -> Tensor:
        def compute(x: Tensor, y: Tensor, rows: UnitRows | None = None) -> tuple[Tensor, Tensor]:
            with evaluating(model.module):
                scores = model.module(model.arrange(x))
                return scores, count_outcomes(task, scores, y, most)

        test = SelfTest(model, compute, f"metric {most}", x[:1], y[:1])
        sizes = InvariantSizes(ROWS, test.reference)
        chunks = padded_chunks(sizes, x, y)
        return torch.cat([compute(chunk[0], chunk[1])[1][:count] for chunk, count in chunks])

    return outcomes
