"""The gradient of each unit at a convolution, from patches of channels-last images.

With x_t the patch under output position t, the gradient is sum_t g_t x_t^T, as for a linear layer
with T positions (Rochette et al. 2019, arXiv:1912.06015). Patches are views; only `products.py`
copies them, for one block of units at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.gradients.products import products
from dpfl.gradients.unit_gradients import UnitGradients, UnitIndex, UnsupportedLayer, from_rows

Pair = tuple[int, int]


@dataclass(frozen=True)
class _Shape:
    """A convolution in two dimensions. One in one dimension is one of height 1."""

    channels: int
    width: int
    kernel: Pair
    stride: Pair
    dilation: Pair
    groups: int

    @classmethod
    def of(cls, module: nn.Conv1d | nn.Conv2d) -> _Shape:
        def pair(sizes: tuple[int, ...]) -> Pair:
            return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])

        sizes = (pair(module.kernel_size), pair(module.stride), pair(module.dilation))
        return cls(module.in_channels, module.out_channels, *sizes, module.groups)

    @property
    def fan_in(self) -> int:
        return self.channels // self.groups

    @property
    def places(self) -> int:
        return self.kernel[0] * self.kernel[1]


def convolution_weight(module: nn.Module, x: Tensor, g: Tensor) -> UnitGradients:
    """Computes the gradients of a convolution's weight.

    Args:
        module: An `nn.Conv1d` or `nn.Conv2d`.
        x: Its input (B, channels, ...).
        g: The gradient at its output (B, channels, ...).

    Returns:
        The gradients, in the weight's own order.

    Raises:
        UnsupportedLayer: There is no batch dimension.
    """
    assert isinstance(module, nn.Conv1d | nn.Conv2d)
    if x.dim() != g.dim() or x.dim() != 2 + len(module.kernel_size):
        raise UnsupportedLayer("a convolution without a batch dimension")
    shape = _Shape.of(module)
    padded_images = _pad(module, x)
    if g.dim() == 3:
        g = g.unsqueeze(2)
    output = g.permute(0, 2, 3, 1).reshape(len(g), -1, shape.groups, shape.width // shape.groups)
    patches = _patches(padded_images, shape, (g.shape[2], g.shape[3]))
    if shape.channels == shape.width == shape.groups:
        return from_rows(
            _depthwise(patches, output.view(len(g), g.shape[2], g.shape[3], shape.groups))
        )

    def right(block: slice, room: Tensor) -> Tensor:
        view = patches[block]
        # Dimensions of size 1 would keep torch from copying runs of numbers that lie together.
        room.view(view.shape).squeeze().copy_(view.squeeze())
        return room

    return _channels_first(
        products(output.transpose(1, 2), right, shape.places * shape.fan_in, (padded_images, g)),
        shape,
    )


def _channels_first(gradient: UnitGradients, shape: _Shape) -> UnitGradients:
    """Puts gradients into the weight's order. Patches have the channels last, parameters have them
    first.
    """
    kernel = (-1, shape.width, shape.places, shape.fan_in)

    def weighted_sum(units: UnitIndex, weights: Tensor, out: Tensor | None = None) -> Tensor:
        total = gradient.weighted_sum(units, weights).view(kernel).mT
        return total.flatten() if out is None else out.view(total.shape).copy_(total).flatten()

    def rows(block: slice) -> Tensor:
        rows_of_block = gradient.rows(block)
        return rows_of_block.view(len(rows_of_block), *kernel[1:]).mT.flatten(1)

    return UnitGradients(
        gradient.squares,
        weighted_sum,
        rows,
        gradient.cancellation,
        gradient.parts,
        gradient.additions,
    )


def _pad(module: nn.Conv1d | nn.Conv2d, x: Tensor) -> Tensor:
    """Puts the module's padding around images, and their channels last (B, H, W, C)."""
    padding = module._reversed_padding_repeated_twice
    if module.padding_mode != "zeros" and len(x):
        x, padding = F.pad(x, padding, mode=module.padding_mode), [0] * len(padding)
    if x.dim() == 3:
        x, padding = x.unsqueeze(2), [*padding, 0, 0]
    return F.pad(x.permute(0, 2, 3, 1), (0, 0, *padding)).contiguous()


def _patches(padded_images: Tensor, shape: _Shape, output: Pair) -> Tensor:
    """Makes a view (B, G, out height, out width, kernel height, kernel width, C / G) of
    channels-last images (B, H, W, C).
    """
    samples, _, row, channels = padded_images.shape
    down, right = row * channels, channels
    return padded_images.as_strided(
        (samples, shape.groups, *output, *shape.kernel, shape.fan_in),
        (
            padded_images.stride(0),
            shape.fan_in,
            down * shape.stride[0],
            right * shape.stride[1],
            down * shape.dilation[0],
            right * shape.dilation[1],
            1,
        ),
    )


def _depthwise(patches: Tensor, output: Tensor) -> Tensor:
    """Computes the rows (B, C * kernel) of a depthwise convolution.

    Each channel meets its own output only, a product too thin for a matrix multiplication.
    """
    _, _, _, _, height, width, _ = patches.shape
    images = patches.squeeze(6).permute(4, 5, 0, 2, 3, 1)
    places = [images[i, j] for i in range(height) for j in range(width)]
    return torch.stack([(place * output).sum((1, 2)) for place in places], dim=2).flatten(1)
