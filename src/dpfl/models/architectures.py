"""The networks of the catalogue for small images, of any size and number of channels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dpfl.errors import DpflError

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
}
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "group": lambda channels: nn.GroupNorm(8, channels),
    "batch": nn.BatchNorm2d,
}

Shape = tuple[int, ...]


def build_linear(shape: Shape, classes: int) -> nn.Module:
    """Builds one linear layer.

    Args:
        shape: The shape of a sample.
        classes: The number of scores.

    Returns:
        The module.
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(int(torch.Size(shape).numel()), classes))


def build_mlp(
    shape: Shape, classes: int, hidden: int, activation: str, embedding: int | None = None
) -> nn.Module:
    """Builds a network with one hidden layer.

    Args:
        shape: The shape of a sample.
        classes: The number of scores.
        hidden: The width of the hidden layer.
        activation: The name of its activation.
        embedding: Must be None: embeddings are for the categories of a table.

    Returns:
        The module.

    Raises:
        DpflError: An embedding is asked for.
    """
    if embedding is not None:
        raise DpflError(
            "Embeddings are for the categories of a table: leave model.embedding out for other "
            "data."
        )
    inputs = int(torch.Size(shape).numel())
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, hidden),
        ACTIVATIONS[activation](),
        nn.Linear(hidden, classes),
    )


class Centre(nn.Module):
    """Subtracts a mean from its samples. It is not trained.

    The mean is 0 until the server sets one that was paid for.

    Args:
        size: The number of features.
    """

    written_as = "centre"

    def __init__(self, size: int) -> None:
        super().__init__()
        self.running_mean: torch.Tensor
        self.register_buffer("running_mean", torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Subtracts the mean.

        Args:
            x: The features (B, size).

        Returns:
            The centred features (B, size).
        """
        return x - self.running_mean


def build_centred_linear(shape: Shape, classes: int) -> nn.Module:
    """Builds one linear layer on centred features.

    Args:
        shape: The shape of a sample.
        classes: The number of scores.

    Returns:
        The module.
    """
    size = int(torch.Size(shape).numel())
    return nn.Sequential(
        OrderedDict(flatten=nn.Flatten(), centre=Centre(size), linear=nn.Linear(size, classes))
    )


def build_cnn(shape: Shape, classes: int, activation: str) -> nn.Module:
    """Builds the small network of the DP-SGD literature (Papernot et al. 2021, arXiv:2007.14191).

    Args:
        shape: The shape of a sample.
        classes: The number of scores.
        activation: The name of its activation.

    Returns:
        The module.

    Raises:
        DpflError: The samples are no images, or too small.
    """
    act = ACTIVATIONS[activation]
    features = nn.Sequential(
        nn.Conv2d(_channels(shape), 16, 8, stride=2, padding=3),
        act(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        act(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
    )
    width = _features(features, shape)
    return nn.Sequential(*features, nn.Linear(width, 32), act(), nn.Linear(32, classes))


def build_cnn_wide(shape: Shape, classes: int, activation: str) -> nn.Module:
    """Builds the network of FedAvg (McMahan et al. 2017, arXiv:1602.05629).

    Args:
        shape: The shape of a sample.
        classes: The number of scores.
        activation: The name of its activation.

    Returns:
        The module.

    Raises:
        DpflError: The samples are no images, or too small.
    """
    act = ACTIVATIONS[activation]
    features = nn.Sequential(
        nn.Conv2d(_channels(shape), 32, 5),
        act(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        act(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    width = _features(features, shape)
    return nn.Sequential(*features, nn.Linear(width, 512), act(), nn.Linear(512, classes))


def build_alexnet(shape: Shape, classes: int) -> nn.Module:
    """Builds AlexNet with 3x3 kernels and one hidden linear layer, for images of about 32x32.

    Args:
        shape: The shape of a sample.
        classes: The number of scores.

    Returns:
        The module.

    Raises:
        DpflError: The samples are no images, or too small.
    """
    module = nn.Sequential(
        nn.Conv2d(_channels(shape), 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 192, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, classes),
    )
    _features(module, shape)
    return module


class Residual(nn.Module):
    """An activation of body(x) + shortcut(x).

    Args:
        body: The residual branch.
        shortcut: The identity, or a projection where widths differ.
        activation: What is applied to the sum.
    """

    written_as = "residual"

    def __init__(self, body: nn.Module, shortcut: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Computes activation(body(x) + shortcut(x)).

        Args:
            x: The channels that enter the block (B, channels, height, width).

        Returns:
            The channels that leave it.
        """
        return self.activation(self.body(x) + self.shortcut(x))


def build_resnet18(shape: Shape, classes: int, norm: str) -> nn.Module:
    """Builds ResNet-18 with the stem for small images: a 3x3 convolution and no pooling.

    Args:
        shape: The shape of a sample.
        classes: The number of scores.
        norm: "group" or "batch".

    Returns:
        The module.
    """
    layers = _convolution(_channels(shape), 64, norm)
    channels = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_basic_block(channels, width, stride, norm), _basic_block(width, width, 1, norm)]
        channels = width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


def _basic_block(channels: int, width: int, stride: int, norm: str) -> nn.Module:
    body = nn.Sequential(
        *_convolution(channels, width, norm, stride=stride),
        *_convolution(width, width, norm, activation=None),
    )
    return Residual(body, _shortcut(channels, width, stride, norm), nn.ReLU())


def build_mobilenet_v2(shape: Shape, classes: int, norm: str) -> nn.Module:
    """Builds MobileNet-V2 with three of its five strides, and a projection where a shortcut changes
    width.

    Args:
        shape: The shape of a sample.
        classes: The number of scores.
        norm: "group" or "batch".

    Returns:
        The module.
    """
    stages = (
        (1, 16, 1, 1),
        (6, 24, 2, 1),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    layers = _convolution(_channels(shape), 32, norm, activation=nn.ReLU6)
    channels = 32
    for expansion, width, repeats, first_stride in stages:
        for stride in (first_stride, *[1] * (repeats - 1)):
            layers.append(_inverted_residual(channels, width, expansion, stride, norm))
            channels = width
    layers += _convolution(channels, 1280, norm, kernel=1, activation=nn.ReLU6)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes))


def _inverted_residual(
    channels: int, width: int, expansion: int, stride: int, norm: str
) -> nn.Module:
    inner_width = channels * expansion
    expand = (
        _convolution(channels, inner_width, norm, kernel=1, activation=nn.ReLU6)
        if expansion > 1
        else []
    )
    depthwise = _convolution(
        inner_width, inner_width, norm, stride=stride, groups=inner_width, activation=nn.ReLU6
    )
    body = nn.Sequential(
        *expand, *depthwise, *_convolution(inner_width, width, norm, kernel=1, activation=None)
    )
    if stride > 1:
        return body
    return Residual(body, _shortcut(channels, width, stride, norm), nn.Identity())


def _shortcut(channels: int, width: int, stride: int, norm: str) -> nn.Module:
    if channels == width and stride == 1:
        return nn.Identity()
    return nn.Sequential(
        *_convolution(channels, width, norm, kernel=1, stride=stride, activation=None)
    )


def _convolution(
    channels: int,
    width: int,
    norm: str,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    activation: Callable[[], nn.Module] | None = nn.ReLU,
) -> list[nn.Module]:
    layers: list[nn.Module] = [
        nn.Conv2d(
            channels, width, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
        ),
        NORMS[norm](width),
    ]
    return layers if activation is None else [*layers, activation()]


def _channels(shape: Shape) -> int:
    if len(shape) != 3:
        raise DpflError(
            "A convolutional model takes images of shape (channels, height, width), but a sample "
            f"has shape {shape}; "
            'use the model "mlp" for other data.'
        )
    return shape[0]


def _features(features: nn.Module, shape: Shape) -> int:
    try:
        with torch.no_grad():
            return features(torch.zeros(1, *shape)).shape[1]
    except RuntimeError as error:
        raise DpflError(
            f'Images of {shape[1]}x{shape[2]} are too small for this model; use "mlp".'
        ) from error
