"""Chains: models whose modules follow one another, run forward and backward by hand.

A small model spends as long on autograd's graph and hooks as on arithmetic. Where every module has
a type known here, the backward pass is a loop: g_{l-1} = g_l dy_l/dx_l, from the last module to the
first trained layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.gradients.layers.rules import RULES, unit_gradients
from dpfl.gradients.losses import losses_and_slopes
from dpfl.gradients.passes.recording import Layer, find_layers
from dpfl.gradients.scratch import Scratch
from dpfl.gradients.unit_gradients import UnitGradients, UnsupportedLayer
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models import FlatModel
from dpfl.models.architectures import Centre

aten = torch.ops.aten

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Link:
    """One module of a chain.

    Attributes:
        forward: Maps the input to the output and to what `backward` needs, the input first.
        backward: Maps the gradient at the output, and what `forward` saved, to the gradient at the
            input.
    """

    forward: Callable[[Tensor], tuple[Tensor, tuple[Tensor, ...]]]
    backward: Callable[..., Tensor]


def _linear(module: nn.Linear) -> Link:
    return Link(
        lambda x: (F.linear(x, module.weight, module.bias), (x,)), lambda g, x: g @ module.weight
    )


def _convolution(module: nn.Conv2d) -> Link:
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise UnsupportedLayer("a convolution with a padding of its own")
    sizes = (module.stride, module.padding, module.dilation)

    def forward(x: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        return F.conv2d(x, module.weight, module.bias, *sizes, module.groups), (x,)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        mask = (True, False, False)
        return aten.convolution_backward(
            g, x, module.weight, None, *sizes, False, (0, 0), module.groups, mask
        )[0]

    return Link(forward, backward)


def _tanh(module: nn.Tanh) -> Link:
    def forward(x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y = torch.empty_like(x)
        np.tanh(
            x.numpy(), out=y.numpy()
        )  # a tenth of the time of torch's, and as near to the truth
        return y, (x, y)

    return Link(forward, lambda g, x, y: aten.tanh_backward(g, y))


def _relu(module: nn.ReLU) -> Link:
    def forward(x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y = torch.relu(x)
        return y, (x, y)

    return Link(forward, lambda g, x, y: aten.threshold_backward(g, y, 0))


def _max_pool(module: nn.MaxPool2d) -> Link:
    if module.return_indices:
        raise UnsupportedLayer("a pool that returns places")
    pairs = [
        (size, size) if isinstance(size, int) else size
        for size in (module.kernel_size, module.stride, module.padding)
    ]
    sizes = (
        *pairs,
        (module.dilation,) * 2 if isinstance(module.dilation, int) else module.dilation,
        module.ceil_mode,
    )

    def forward(x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, places = aten.max_pool2d_with_indices(x, *sizes)
        return y, (x, places)

    return Link(
        forward, lambda g, x, places: aten.max_pool2d_with_indices_backward(g, x, *sizes, places)
    )


def _flatten(module: nn.Flatten) -> Link:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise UnsupportedLayer("a part that flattens some dimensions only")
    return Link(lambda x: (x.flatten(1), (x,)), lambda g, x: g.view(x.shape))


def _centre(module: Centre) -> Link:
    return Link(lambda x: (x - module.running_mean, (x,)), lambda g, x: g)


def _dropout(module: nn.Dropout) -> Link:
    def forward(x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        if not module.training:
            return x, (x,)
        y, mask = aten.native_dropout(x, module.p, True)
        return y, (x, mask)

    def backward(g: Tensor, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return g
        return aten.native_dropout_backward(g, mask, 1 / (1 - module.p) if module.p < 1 else 0.0)

    return Link(forward, backward)


def _by_autograd(module: nn.Module) -> Link:
    if getattr(module, "inplace", False):
        raise UnsupportedLayer("an activation in place")

    def forward(x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = module(x)
        return y.detach(), (x, y)

    return Link(forward, lambda g, x, y: torch.autograd.grad(y, x, g)[0])


LINKS: dict[type[nn.Module], Callable[[Any], Link]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.Tanh: _tanh,
    nn.ReLU: _relu,
    nn.MaxPool2d: _max_pool,
    nn.Flatten: _flatten,
    Centre: _centre,
    nn.Dropout: _dropout,
    **dict.fromkeys(
        (
            nn.ELU,
            nn.GELU,
            nn.SiLU,
            nn.Sigmoid,
            nn.AvgPool2d,
            nn.AdaptiveAvgPool2d,
            nn.AdaptiveMaxPool2d,
        ),
        _by_autograd,
    ),
}


class Chain:
    """A model whose modules follow one another, each of a type known here.

    Args:
        model: The model.

    Raises:
        UnsupportedLayer: The model is no such chain, or a layer has no rule.

    Attributes:
        layers: The trained layers, in order.
        first: The place of the first of them in the chain.
    """

    def __init__(self, model: FlatModel) -> None:
        self.model = model
        self._modules = list(model.module.modules())
        self._links = _links(model)
        self.layers = [layer for _, layer in self._links if layer]
        self.first = next(index for index, (_, layer) in enumerate(self._links) if layer)

    def forward(self, x: Tensor, after: int = -1) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """Runs the chain, or what comes after one of its modules.

        Args:
            x: The samples, or the output of the module `after`.
            after: The place of the module whose output x is; -1 for the whole chain.

        Returns:
            The scores, and what each module saved for the backward pass.

        Raises:
            UnsupportedLayer: A hook was put on a module.
        """
        if any(_patched(module) for module in self._modules):
            raise UnsupportedLayer("hooks")
        saved_tensors = []
        for link, _ in self._links[after + 1 :]:
            x, needs = link.forward(x)
            saved_tensors.append(needs)
        return x, saved_tensors

    def backward(
        self, g: Tensor, saved_tensors: list[tuple[Tensor, ...]]
    ) -> Iterator[tuple[Layer, Tensor, Tensor]]:
        """Goes back from the gradient at the scores to the first trained layer.

        Args:
            g: The gradient at the scores.
            saved_tensors: What each module saved in the forward pass.

        Yields:
            Each trained layer with its input and the gradient at its output, the last layer first.
        """
        for index in range(len(self._links) - 1, self.first - 1, -1):
            link, layer = self._links[index]
            below = link.backward(g, *saved_tensors[index]) if index > self.first else g
            if layer:
                yield layer, saved_tensors[index][0], g
            g = below

    @property
    def begins_with_layer(self) -> bool:
        """Whether nothing but the shape of a sample changes before the first trained layer."""
        chain = list(_in_order(self.model.module))
        return all(isinstance(module, nn.Flatten) for module in chain[: self.first])


def _links(model: FlatModel) -> list[tuple[Link, Layer | None]]:
    chain = list(_in_order(model.module))
    layers = {layer.module: layer for layer in find_layers(model)}
    owners = [module for module in chain if list(module.parameters())]
    if len(set(owners)) < len(owners):
        raise UnsupportedLayer("a layer called twice")
    return [(LINKS[type(module)](module), layers.get(module)) for module in chain]


def _in_order(module: nn.Module) -> Iterator[nn.Module]:
    if _patched(module):
        raise UnsupportedLayer("hooks")
    if type(module) is nn.Sequential:
        for child in module:
            yield from _in_order(child)
    elif type(module) in LINKS:
        yield module
    elif type(module) is not nn.Identity:
        raise UnsupportedLayer(f"a {type(module).__name__}")


def _patched(module: nn.Module) -> bool:
    """Says whether calling the module may do something else than its type says."""
    own = module.__dict__
    return "forward" in own or any(own[hooks] for hooks in _HOOKS)


class ChainPass:
    """The pass for chains, by the rules of the layers.

    Args:
        model: The model.

    Raises:
        UnsupportedLayer: The model is no chain.
    """

    writes_rows: ClassVar[bool] = False

    def __init__(self, model: FlatModel) -> None:
        self._chain = Chain(model)
        self._scratch = Scratch()

    def __call__(
        self, x: Tensor, y: Tensor, rows: UnitRows | None = None
    ) -> tuple[Tensor, list[UnitGradients]]:
        scores, saved_tensors = self._chain.forward(self._chain.model.arrange(x))
        losses, g = losses_and_slopes(scores, y, self._chain.model.task)
        if rows is not None:
            g = rows.weigh(g)
        gradients: dict[int, UnitGradients] = {}
        with self._scratch.step():
            for layer, inputs, outputs in self._chain.backward(g, saved_tensors):
                of_layer = unit_gradients(
                    RULES[type(layer.module)], layer.module, inputs, outputs, rows
                )
                gradients |= {entry: of_layer[name] for name, entry in layer.entries.items()}
        return losses, [gradients[entry] for entry in range(len(gradients))]
