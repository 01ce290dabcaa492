"""Plain SGD on a client's batches, in several ways. Each way moves the model by a batch and then
yields the batch's mean loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.client.dataset import ClientDataset
from dpfl.client.descent.drift import Drift
from dpfl.client.descent.optimisers import Optimiser
from dpfl.client.task import LocalTraining
from dpfl.gradients.losses import Loss, losses_and_slopes, mean_loss, plain_gradient
from dpfl.gradients.passes.chain import Chain
from dpfl.gradients.passes.recording import Layer
from dpfl.gradients.unit_gradients import UnsupportedLayer
from dpfl.models import FlatModel

aten = torch.ops.aten

Descent = Callable[[Iterable[Tensor]], Iterator[float]]


def descent(
    model: FlatModel,
    data: ClientDataset,
    local: LocalTraining,
    steps: int,
    drift: Drift | None = None,
    loss_of: Loss = mean_loss,
) -> Descent:
    """Chooses the quickest way of plain steps for a model, its data and a number of steps.

    Steps that are linear in the gradient need no gradient vector: each layer moves by itself.

    Args:
        model: The model, which is moved in place.
        data: The client's data.
        local: Optimiser and batch size.
        steps: How many steps there will be.
        drift: What is added to every gradient, if anything.
        loss_of: The loss; one with more terms than the task's is left to autograd.

    Returns:
        A function from batches to the mean loss of each, after it has moved the model.
    """
    rate, anyhow = (
        local.optimiser.rate,
        partial(_by_autograd, model, data, local.optimiser, drift, loss_of),
    )
    if drift or loss_of is not mean_loss or not local.optimiser.linear:
        return anyhow
    try:
        chain = Chain(model)
    except UnsupportedLayer:
        return anyhow
    return partial(
        _in_dual if _dual_pays(chain, len(data), local.batch_size, steps) else _in_place,
        chain,
        data,
        rate,
    )


def _by_autograd(
    model: FlatModel,
    data: ClientDataset,
    optimiser: Optimiser,
    drift: Drift | None,
    loss_of: Loss,
    batches: Iterable[Tensor],
) -> Iterator[float]:
    step, here = optimiser.start(), model.vector[: model.layout.trainable]
    for batch in batches:
        gradient, loss = plain_gradient(model, *data.take(batch), loss_of)
        here += step(drift.add_to(gradient, here) if drift else gradient)
        yield loss


@torch.no_grad()
def _in_place(
    chain: Chain, data: ClientDataset, rate: float, batches: Iterable[Tensor]
) -> Iterator[float]:
    """Moves each layer as soon as the gradient has passed it, without a gradient vector."""
    for batch in batches:
        x, y = data.take(batch)
        scores, saved_inputs = chain.forward(chain.model.arrange(x))
        losses, g = losses_and_slopes(scores, y, chain.model.task)
        for layer, inputs, outputs in chain.backward(g, saved_inputs):
            _move(layer, inputs, outputs, -rate / len(batch))
        yield float(losses.mean())


@torch.no_grad()
def _in_dual(
    chain: Chain, data: ClientDataset, rate: float, batches: Iterable[Tensor]
) -> Iterator[float]:
    """Trains the first layer in dual form. With W = W_0 + a^T X, a step adds -rate g to a, and W x
    follows from inner products of samples.
    """
    x, y = data.take(torch.arange(len(data)))
    x, first = x.flatten(1), chain.layers[0].module
    assert isinstance(first, nn.Linear)
    products = x @ x.T if first.bias is None else x @ x.T + 1
    outputs_before, a = (
        F.linear(x, first.weight, first.bias),
        x.new_zeros(len(x), first.out_features),
    )
    for batch in batches:
        scores, saved_inputs = chain.forward(
            torch.addmm(outputs_before[batch], products[batch], a), after=chain.first
        )
        losses, g = losses_and_slopes(scores, y[batch], chain.model.task)
        for layer, inputs, outputs in chain.backward(
            g, [()] * chain.first + [(batch,)] + saved_inputs
        ):
            if layer.module is first:
                a.index_add_(0, inputs, outputs, alpha=-rate / len(batch))
            else:
                _move(layer, inputs, outputs, -rate / len(batch))
        yield float(losses.mean())
    first.weight.addmm_(a.T, x)
    if first.bias is not None:
        first.bias.add_(a.sum(0))


def _dual_pays(chain: Chain, samples: int, batch: int, steps: int) -> bool:
    """Says whether the dual form saves half of the multiplications of the first layer, or more."""
    first = chain.layers[0]
    if (
        not isinstance(first.module, nn.Linear)
        or not chain.begins_with_layer
        or len(first.entries) < len(list(first.module.parameters()))
    ):
        return False
    width, outputs, samples_in_steps = (
        first.module.in_features,
        first.module.out_features,
        steps * min(batch, samples),
    )
    dual = samples * width * (samples + 2 * outputs) + samples_in_steps * samples * outputs
    return 2 * dual < 2 * samples_in_steps * width * outputs


def _move(layer: Layer, x: Tensor, g: Tensor, factor: float) -> None:
    module = layer.module
    if isinstance(module, nn.Linear):
        x, g = x.flatten(0, -2), g.flatten(0, -2)
        if "weight" in layer.entries:
            module.weight.addmm_(g.T, x, alpha=factor)
        if "bias" in layer.entries:
            module.bias.add_(g.sum(0), alpha=factor)
        return
    assert isinstance(module, nn.Conv2d)
    needs_gradient = (False, "weight" in layer.entries, "bias" in layer.entries)
    sizes = (
        module.stride,
        module.padding,
        module.dilation,
        False,
        (0, 0),
        module.groups,
        needs_gradient,
    )
    _, weight, bias = aten.convolution_backward(g, x, module.weight, [module.out_channels], *sizes)
    if needs_gradient[1]:
        module.weight.add_(weight, alpha=factor)
    if needs_gradient[2] and module.bias is not None:
        module.bias.add_(bias, alpha=factor)
