"""Models that amplify the last bit of a layer, by large weights and a bias that cancels them."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SCALE = 2.0**30
"""The scale of the weights. It is a power of two, so that it changes no rounding."""

LABEL = 1
"""The label of every row."""

_NONE_LIKELY = -40.0
"""A score at which a class has no probability, next to a score of 0."""


@dataclass(frozen=True)
class Amplifier:
    """A classifier whose loss is about 0 or large by the sign of one value. At the base this value
    is 0, up to rounding.

    Attributes:
        module: The whole model, which gives scores (rows, classes).
        gate: The part of it from the input to the values that are gated. It shares the model's
            parameters.
        unit: The place of the value among the flattened results of `gate`.
        base: One row, without the batch dimension.
        markers: How many of the last numbers of a row have no weight. Without any, the sign of the
            value shows in the loss. With some, it is a slope that has the sign: it shows in the
            gradient of the first row of the first parameter, at the markers that are not 0.
    """

    module: nn.Module
    gate: nn.Module
    unit: int
    base: Tensor
    markers: int = 0


def linear(inputs: int, classes: int, seed: int = 0) -> Amplifier:
    """Builds a softmax regression. The score of class 0 is the value, that of the label is 0, and
    no other class is likely.

    Args:
        inputs: How many numbers a row has.
        classes: How many classes there are, at least 2.
        seed: Of base and weights.

    Returns:
        The model, with a base.
    """
    module, base = nn.Linear(inputs, classes), _base((inputs,), seed)
    _amplify(module, base, seed)
    with torch.no_grad():
        module.bias[2:] = -SCALE
    return Amplifier(nn.Sequential(module), module, 0, base)


def mlp(inputs: int, hidden: int, classes: int, seed: int = 0) -> Amplifier:
    """Builds two linear layers. The value is that of the first hidden unit before its ReLU.

    Args:
        inputs: How many numbers a row has.
        hidden: How many hidden units there are.
        classes: How many classes there are, at least 2.
        seed: Of base and weights.

    Returns:
        The model, with a base.
    """
    module, base = nn.Linear(inputs, hidden), _base((inputs,), seed)
    _amplify(module, base, seed)
    return Amplifier(nn.Sequential(module, nn.ReLU(), _head(hidden, 0, classes)), module, 0, base)


def convolution(
    shape: tuple[int, int, int], filters: int, kernel: int, classes: int, seed: int = 0
) -> Amplifier:
    """Builds a convolution, a ReLU and a linear layer. The value is that of the first filter at one
    place in the middle.

    Args:
        shape: Channels, height and width of an image.
        filters: How many filters there are.
        kernel: Height and width of a filter.
        classes: How many classes there are, at least 2.
        seed: Of base and weights.

    Returns:
        The model, with a base.
    """
    module, base = nn.Conv2d(shape[0], filters, kernel), _base(shape, seed)
    height, width = shape[1] - kernel + 1, shape[2] - kernel + 1
    unit = (height // 2) * width + width // 2
    _amplify(module, base, seed, unit)
    head = _head(filters * height * width, unit, classes)
    return Amplifier(nn.Sequential(module, nn.ReLU(), nn.Flatten(), head), module, unit, base)


class _Slope(nn.Module):
    """The slope of the loss at the first hidden unit, of a model of two linear layers."""

    def __init__(self, module: nn.Sequential, head: nn.Linear) -> None:
        super().__init__()
        self.module, self.head = module, head

    def forward(self, x: Tensor) -> Tensor:
        scores = self.module(x)
        wrong = scores.softmax(1) - nn.functional.one_hot(torch.tensor(LABEL), scores.shape[1])
        return wrong @ self.head.weight[:, :1]


def backward(
    features: int, hidden: int, classes: int, markers: int = 41, seed: int = 0
) -> Amplifier:
    """Builds two linear layers. The value is the slope at the first hidden unit, where the weights
    of the second layer cancel.

    Nothing shows in the forward pass, since that unit is 2^-60 for every row. The clipped gradient
    of a row is the clip norm along its markers, in the direction of the slope: a sign that changes
    moves it by two clip norms.

    Args:
        features: How many numbers of a row have weight.
        hidden: How many hidden units there are, more than features.
        classes: How many classes there are, at least 2.
        markers: How many numbers of a row have none: more than there are other units.
        seed: Of base and weights.

    Returns:
        The model, with a base.
    """
    rng = torch.Generator().manual_seed(seed)
    first, head = nn.Linear(features + markers, hidden), nn.Linear(hidden, classes)
    base = torch.cat([_base((features,), seed) + 0.5, torch.zeros(markers)])
    module = nn.Sequential(first, nn.ReLU(), head)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        first.weight[1 : features + 1, :features] = torch.eye(features)
        first.bias[0] = 2.0**-60
        head.weight[:, 1 : features + 1] = torch.randn(classes, features, generator=rng)
        wrong = head.weight.double() @ first(base).relu().double()
        wrong = wrong.softmax(0) - nn.functional.one_hot(torch.tensor(LABEL), classes)
        large = torch.randn(classes, generator=rng).double()
        head.weight[:, 0] = 2.0**10 * SCALE * (large - wrong * (large @ wrong) / (wrong @ wrong))
    return Amplifier(module, _Slope(module, head), 0, base, markers)


def _base(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def _amplify(module: nn.Linear | nn.Conv2d, base: Tensor, seed: int, unit: int = 0) -> None:
    """Sets large weights for the first output and the bias that cancels them at the base. The other
    outputs get zeros.
    """
    assert module.bias is not None
    weights = torch.randn(module.weight[0].shape, generator=torch.Generator().manual_seed(seed + 1))
    module.weight.zero_()
    module.bias.zero_()
    module.weight[0] = SCALE * weights
    module.bias[0] = -copy.deepcopy(module).double()(base.double()[None]).flatten()[unit]


@torch.no_grad()
def _head(inputs: int, unit: int, classes: int) -> nn.Linear:
    """Builds the last layer, with scores by one gated value: class 0 if it is above 0, else the
    label.
    """
    head = nn.Linear(inputs, classes)
    head.weight.zero_()
    head.bias.fill_(-SCALE)
    head.weight[0, unit] = 1.0
    head.bias[0], head.bias[LABEL] = _NONE_LIKELY, 0.0
    return head
