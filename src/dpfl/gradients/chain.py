"""Chains of common layers, forward and backward by hand: small models spend as long on graphs and
hooks as on arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.gradients.losses import losses_and_gradients
from dpfl.gradients.products import SampleGradient, Unsupported
from dpfl.gradients.recording import Layer, find_layers
from dpfl.gradients.rules import RULES, of_units
from dpfl.gradients.scratch import Scratch
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models import FlatModel
from dpfl.models.architectures import Centre

aten = torch.ops.aten

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Link:
    """One module of a chain: `forward` gives the output and what `backward` needs, the input
    first.
    """

    forward: Callable[[Tensor], tuple[Tensor, tuple[Tensor, ...]]]
    backward: Callable[..., Tensor]


def _linear(module: nn.Linear) -> Link:
    return Link(
        lambda x: (F.linear(x, module.weight, module.bias), (x,)), lambda g, x: g @ module.weight
    )


def _convolution(module: nn.Conv2d) -> Link:
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise Unsupported("a convolution with a padding of its own")
    sizes = (module.stride, module.padding, module.dilation)

    def forward(x: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        return F.conv2d(x, module.weight, module.bias, *sizes, module.groups), (x,)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        needed = (True, False, False)
        return aten.convolution_backward(
            g, x, module.weight, None, *sizes, False, (0, 0), module.groups, needed
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
        raise Unsupported("a pool that returns places")
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
        raise Unsupported("a part that flattens some dimensions only")
    return Link(lambda x: (x.flatten(1), (x,)), lambda g, x: g.view(x.shape))


def _centre(module: Centre) -> Link:
    return Link(lambda x: (x - module.running_mean, (x,)), lambda g, x: g)


def _dropout(module: nn.Dropout) -> Link:
    def forward(x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        if not module.training:
            return x, (x,)
        y, kept = aten.native_dropout(x, module.p, True)
        return y, (x, kept)

    def backward(g: Tensor, x: Tensor, kept: Tensor | None = None) -> Tensor:
        return (
            g
            if kept is None
            else aten.native_dropout_backward(g, kept, 1 / (1 - module.p) if module.p < 1 else 0.0)
        )

    return Link(forward, backward)


def _by_autograd(module: nn.Module) -> Link:
    if getattr(module, "inplace", False):
        raise Unsupported("an activation in place")

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
    """A model whose modules follow one another, each of a type known here; Unsupported
    otherwise.
    """

    def __init__(self, model: FlatModel) -> None:
        self.model = model
        self._modules = list(model.module.modules())
        self._links = _links(model)
        self.layers = [layer for _, layer in self._links if layer]
        self.first = next(index for index, (_, layer) in enumerate(self._links) if layer)

    def forward(self, x: Tensor, after: int = -1) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """The scores, and what the backward pass needs of each link `after` the one whose output is
        x.
        """
        if any(_patched(module) for module in self._modules):
            raise Unsupported("hooks")
        kept = []
        for link, _ in self._links[after + 1 :]:
            x, needed = link.forward(x)
            kept.append(needed)
        return x, kept

    def backward(
        self, g: Tensor, kept: list[tuple[Tensor, ...]]
    ) -> Iterator[tuple[Layer, Tensor, Tensor]]:
        """From the gradient at the scores, each trained layer with its input and the gradient at
        its output, the last first.
        """
        for index in range(len(self._links) - 1, self.first - 1, -1):
            link, layer = self._links[index]
            below = link.backward(g, *kept[index]) if index > self.first else g
            if layer:
                yield layer, kept[index][0], g
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
        raise Unsupported("a layer called twice")
    return [(LINKS[type(module)](module), layers.get(module)) for module in chain]


def _in_order(module: nn.Module) -> Iterator[nn.Module]:
    if _patched(module):
        raise Unsupported("hooks")
    if type(module) is nn.Sequential:
        for child in module:
            yield from _in_order(child)
    elif type(module) in LINKS:
        yield module
    elif type(module) is not nn.Identity:
        raise Unsupported(f"a {type(module).__name__}")


def _patched(module: nn.Module) -> bool:
    """Whether calling the module may do something else than its type says."""
    own = module.__dict__
    return "forward" in own or any(own[hooks] for hooks in _HOOKS)


class ChainPass:
    """Per-sample gradients of a batch by the rules of the layers. What it returns is valid until
    its next call.
    """

    def __init__(self, model: FlatModel) -> None:
        self._chain = Chain(model)
        self._scratch = Scratch()

    def __call__(
        self, x: Tensor, y: Tensor, rows: UnitRows | None = None
    ) -> tuple[Tensor, list[SampleGradient]]:
        scores, kept = self._chain.forward(self._chain.model.arrange(x))
        losses, g = losses_and_gradients(scores, y, self._chain.model.task)
        if rows is not None:
            g = rows.weigh(g)
        gradients: dict[int, SampleGradient] = {}
        with self._scratch.step():
            for layer, inputs, outputs in self._chain.backward(g, kept):
                of_layer = of_units(RULES[type(layer.module)], layer.module, inputs, outputs, rows)
                gradients |= {entry: of_layer[name] for name, entry in layer.entries.items()}
        return losses, [gradients[entry] for entry in range(len(gradients))]
