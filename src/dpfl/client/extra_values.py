"""Values that a reply carries beside its update.

A *slope* has noise and is paid for like a step. *Raw values* have none: no accountant covers them,
and an owner's rules refuse them by default. Norms of gradients are asked of public clients only.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dpfl.client.descent.local_training import clipped_sum, gradient_norms
from dpfl.client.descent.objectives import Generator
from dpfl.client.module_randomness import drawing_from
from dpfl.client.task import DIFFERENCES, LAST_STEP, ClientTask
from dpfl.client.training import ClientTraining
from dpfl.client.workspace import Workspace
from dpfl.errors import DpflError
from dpfl.gradients.losses import mean_loss, plain_gradient
from dpfl.models import FlatModel


def extra_values(training: ClientTraining) -> dict[str, np.ndarray] | None:
    """Computes what a task asks for beside its update, after its training.

    Args:
        training: The training, which has ended.

    Returns:
        Values by name; None where nothing is asked for.
    """
    task, workspace, vector = training.task, training.workspace, training.vector
    if task.raw:
        values: dict[str, np.ndarray] = {}
        if DIFFERENCES in task.raw_values:
            own = workspace.model.read()
            values |= model_differences(workspace, task, vector, own, training.generator)
        return values | (last_step_change(training) if LAST_STEP in task.raw_values else {})
    if task.slope:
        return {"slope": np.array(noisy_slope(workspace, task, vector, training.generator))}
    return None


def noisy_slope(
    workspace: Workspace, task: ClientTask, vector: Tensor, generator: Generator
) -> float:
    """Computes |sum_i clip(g_i(x)) - clip(g_i(x_0))| over one more batch, with noise.

    A unit moves the number by twice its clip at most, which the noise is for.

    Args:
        workspace: Its model is the trained one, x.
        task: The task, with private steps.
        vector: The model that the server sent, x_0.
        generator: Random generators of the released value.

    Returns:
        The slope, which is paid for like a step.
    """
    assert task.samples is not None
    model, release = workspace.model, task.samples.for_slopes
    data = workspace.context.data.training(task.client)
    positions = release.sampling.draw(len(data), generator("slope batch"))
    batch = data.units(torch.from_numpy(positions))
    gradients, trained_model = workspace.gradients(release), model.read()
    with drawing_from(generator("slope module")):
        after = clipped_sum(gradients, release.clip, *batch).clone()
        model.load(vector)
        before = clipped_sum(gradients, release.clip, *batch)
    model.load(trained_model)
    slope = float((after - before).norm())
    return release.add_noise_to_number(slope, generator("slope noise"), largest_weight=2.0)


def model_differences(
    workspace: Workspace, task: ClientTask, vector: Tensor, own: Tensor, generator: Generator
) -> dict[str, np.ndarray]:
    """Computes the values that ALI and ALS send as published. No noise covers them.

    Args:
        workspace: The model and the data.
        task: The task.
        vector: The model that the server sent.
        own: The client's own model.
        generator: Random generators of the released value.

    Returns:
        Differences of loss, gradient and weights between the two models, on one batch.
    """
    assert task.samples is not None
    model, data = workspace.model, workspace.context.data.training(task.client).as_rows
    trained_model = model.read()
    positions = task.samples.sampling.draw(len(data), generator("raw batch"))
    batch = data.take(torch.from_numpy(positions if len(positions) else np.arange(len(data))))
    model.load(own)
    after, loss_after = plain_gradient(model, *batch)
    model.load(vector)
    before, loss_before = plain_gradient(model, *batch)
    model.load(trained_model)
    return {
        "losses": np.array(loss_after - loss_before),
        "gradients": np.array(float((after - before).norm())),
        "distance": np.array(float((own - vector).norm())),
        "gradient": before.numpy(),
    }


def last_step_change(training: ClientTraining) -> dict[str, np.ndarray]:
    """Computes the values of the last step that the code of ALI sends. No noise covers them.

    Args:
        training: The training, which remembers its last step.

    Returns:
        How far the step went, and how it changed the loss of its own batch.
    """
    if training.last_step is None:  # every batch was empty
        return {"last_step": np.array(0.0), "last_losses": np.array(0.0)}
    workspace, (start, positions) = training.workspace, training.last_step
    model, end = workspace.model, workspace.model.read()
    data = workspace.context.data.training(training.task.client).as_rows
    batch = data.take(torch.from_numpy(positions))
    after = _loss(model, *batch)
    model.load(start)
    before = _loss(model, *batch)
    model.load(end)
    return {
        "last_step": np.array(float((end - start).norm())),
        "last_losses": np.array(after - before),
    }


def _loss(model: FlatModel, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float(mean_loss(model, x, y)) if len(x) else 0.0


def public_gradient_norms(workspace: Workspace, task: ClientTask, vector: Tensor) -> np.ndarray:
    """Measures the gradient of each sample of a public client as the clip does.

    Args:
        workspace: The model and the data.
        task: The task, with a release of samples.
        vector: The model that the server sent.

    Returns:
        A norm per sample.

    Raises:
        DpflError: The client's data is not public.
    """
    context = workspace.context
    if task.client not in context.public or task.samples is None:
        raise DpflError(
            "Only clients whose data is public may be asked for the norms of gradients."
        )
    workspace.model.load(vector)
    data = context.data.training(task.client).as_rows
    batch = data.take(torch.arange(len(data)))
    return gradient_norms(workspace.gradients(task.samples), task.samples.clip, *batch).numpy()
