"""The catalogue's modules as functions of JAX, with the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from torch import nn

from dpfl.models.architectures import Residual

Forward = Callable[[list[Any], Any], Any]
"""Maps parameters, in the order of the module, and a batch to activations."""


def from_torch(module: nn.Module, layout: str) -> tuple[Callable[[list[Any], Any], Any], list[Any]]:
    """Returns a function of (parameters, batch) and its parameters, for images in `layout`."""
    parameters = [jnp.asarray(_to_layout(p.detach().numpy(), layout)) for p in module.parameters()]

    def forward(parameters: list[Any], x: Any) -> Any:
        return _apply(module, iter(parameters), x, layout)

    return forward, parameters


def to_flat(parameters: list[Any], layout: str) -> np.ndarray:
    """Returns the parameters as one vector in PyTorch's order."""
    return np.concatenate([_from_layout(np.asarray(p), layout).reshape(-1) for p in parameters])


def _to_layout(value: np.ndarray, layout: str) -> np.ndarray:
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 and layout == "NHWC" else value


def _from_layout(value: np.ndarray, layout: str) -> np.ndarray:
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 and layout == "NHWC" else value


def _apply(module: nn.Module, parameters: Any, x: Any, layout: str) -> Any:
    match module:
        case nn.Sequential():
            for child in module:
                x = _apply(child, parameters, x, layout)
            return x
        case Residual():
            body = _apply(module.body, parameters, x, layout)
            shortcut = _apply(module.shortcut, parameters, x, layout)
            return _apply(module.activation, parameters, body + shortcut, layout)
        case nn.Conv2d():
            return _convolution(module, parameters, x, layout)
        case nn.Linear():
            weight, bias = next(parameters), next(parameters)
            return x @ weight.T + bias
        case nn.GroupNorm():
            return _group_norm(module, next(parameters), next(parameters), x, layout)
    return _apply_fixed(module, x, layout)


def _apply_fixed(module: nn.Module, x: Any, layout: str) -> Any:
    """Applies a layer that has no parameters."""
    match module:
        case nn.MaxPool2d():
            return _max_pool(module, x, layout)
        case nn.AdaptiveAvgPool2d():
            return x.mean(_places(layout), keepdims=True)
        case nn.Flatten():
            images = x.ndim == 4 and layout == "NHWC"
            return (x.transpose(0, 3, 1, 2) if images else x).reshape(len(x), -1)
        case nn.ReLU():
            return jax.nn.relu(x)
        case nn.Tanh():
            return jnp.tanh(x)
        case nn.Identity():
            return x
    raise TypeError(
        f"{type(module).__name__} has no form in JAX here, so this model cannot be compared."
    )


def _places(layout: str) -> tuple[int, int]:
    return (1, 2) if layout == "NHWC" else (2, 3)


def _convolution(module: nn.Conv2d, parameters: Any, x: Any, layout: str) -> Any:
    kernel = "HWIO" if layout == "NHWC" else "OIHW"
    padding = [(size, size) for size in module.padding]  # type: ignore[misc]
    y = lax.conv_general_dilated(
        x, next(parameters), module.stride, padding, dimension_numbers=(layout, kernel, layout)
    )
    if module.bias is None:
        return y
    bias = next(parameters)
    return y + (bias if layout == "NHWC" else bias[:, None, None])


def _max_pool(module: nn.MaxPool2d, x: Any, layout: str) -> Any:
    def over_places(size: Any) -> tuple[int, ...]:
        return (1, size, size, 1) if layout == "NHWC" else (1, 1, size, size)

    window, strides = over_places(module.kernel_size), over_places(module.stride)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "VALID")


def _group_norm(module: nn.GroupNorm, weight: Any, bias: Any, x: Any, layout: str) -> Any:
    channels, groups = module.num_channels, module.num_groups
    if layout == "NCHW":
        x_by_group, axes, across = (
            x.reshape(len(x), groups, channels // groups, *x.shape[2:]),
            (2, 3, 4),
            (channels, 1, 1),
        )
    else:
        x_by_group, axes, across = (
            x.reshape(*x.shape[:3], groups, channels // groups),
            (1, 2, 4),
            (channels,),
        )
    mean, variance = x_by_group.mean(axes, keepdims=True), x_by_group.var(axes, keepdims=True)
    normal = ((x_by_group - mean) * lax.rsqrt(variance + module.eps)).reshape(x.shape)
    return normal * weight.reshape(across) + bias.reshape(across)
