"""Per-sample gradients of one layer, from its input and the gradient at its output.

For every layer type there is a rule (module, input, output gradient) -> {parameter name: SampleGradient}. A weight
whose gradient is a sum of T outer products per sample is either written out, or its norm comes from the two T x T Gram
matrices ("ghost" norm), whichever moves less data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class SampleGradient:
    """One parameter: the squared norm of each sample's gradient, and the sum of those gradients under weights (B,)."""

    squares: Tensor
    weighted: Callable[[Tensor], Tensor]


class Unsupported(Exception):
    """The layer was used in a way that its rule does not cover."""


LayerGradients = dict[str, SampleGradient]
Rule = Callable[[nn.Module, Tensor, Tensor], LayerGradients]

# A multiply-add of a Gram matrix costs about an eighth of writing and twice reading a number of a gradient.
_GRAM_ADVANTAGE = 8
# Numbers: what one block of unfolded patches or gradients may take, and what may be kept until the weights are known.
_BLOCK = 1 << 21
_KEEP = 1 << 25


def written_out(rows: Tensor) -> SampleGradient:
    return SampleGradient(_squares(rows), lambda weights: weights @ rows)


def _squares(rows: Tensor) -> Tensor:
    # Not vector_norm: over ten million numbers its running float32 sum is low by 4e-4; this one adds in a cascade.
    return rows.square().sum(1)


def _trained(module: nn.Module, weight: Callable[[], SampleGradient], bias: Callable[[], Tensor]) -> LayerGradients:
    """Computes what is trained, and nothing for a frozen or absent parameter."""
    wanted = {name for name, parameter in module.named_parameters(recurse=False) if parameter.requires_grad}
    gradients = {"weight": weight()} if "weight" in wanted else {}
    if "bias" in wanted:
        gradients["bias"] = written_out(bias())
    return gradients


def linear(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    if x.dim() < 2:
        raise Unsupported("a linear layer without a batch dimension")
    if x.dim() == 2:
        return _trained(module, lambda: _outer(x, g), lambda: g)
    x, g = x.flatten(1, -2), g.flatten(1, -2)

    def weighted(weights: Tensor) -> Tensor:
        return ((g * weights[:, None, None]).flatten(0, 1).T @ x.flatten(0, 1)).flatten()

    def weight() -> SampleGradient:
        return _products(g.unsqueeze(1), lambda block: x[block].unsqueeze(1), x.shape[-1], weighted)

    return _trained(module, weight, lambda: g.sum(1))


def _outer(x: Tensor, g: Tensor) -> SampleGradient:
    squares = _squares(x) * _squares(g)
    return SampleGradient(squares, lambda weights: ((g * weights[:, None]).T @ x).flatten())


def _products(
    left: Tensor, right: Callable[[slice], Tensor], width: int, weighted: Callable[[Tensor], Tensor]
) -> SampleGradient:
    """Gradients left^T right, from left (B, G, T, r) and right(block) (b, G, T, width)."""
    samples, groups, terms, height = left.shape
    ghost = terms * terms * (height + width) <= _GRAM_ADVANTAGE * height * width
    keep = not ghost and left.shape[0] * groups * height * width <= _KEEP
    step = max(1, _BLOCK // (groups * width * (terms if ghost else max(terms, height))))
    squares, kept = [], []
    for start in range(0, samples, step):
        block = slice(start, start + step)
        a, b = left[block], right(block)
        if ghost:
            squares.append(((a @ a.mT) * (b @ b.mT)).sum((1, 2, 3)).clamp_min(0))
            continue
        gradients = a.mT @ b
        squares.append(torch.linalg.vector_norm(gradients, dim=3).square().sum((1, 2)))
        if keep:
            kept.append(gradients.flatten(1))
    if not keep:
        return SampleGradient(torch.cat(squares), weighted)
    rows = kept[0] if len(kept) == 1 else torch.cat(kept)
    return SampleGradient(torch.cat(squares), lambda weights: weights @ rows)


def convolution(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    assert isinstance(module, nn.Conv2d)
    if x.dim() != 4:
        raise Unsupported("a convolution without a batch dimension")
    if module.padding_mode != "zeros":
        padded = F.pad(x, module._reversed_padding_repeated_twice, mode=module.padding_mode).permute(0, 2, 3, 1)
    else:
        padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, *module._reversed_padding_repeated_twice))
    padded = padded.contiguous()
    samples, groups = len(x), module.groups
    output = g.permute(0, 2, 3, 1).reshape(samples, -1, groups, module.out_channels // groups)
    height, width = module.kernel_size
    fan_in = module.in_channels // groups
    patches = _patches(padded, module, (g.shape[2], g.shape[3]))

    def right(block: slice) -> Tensor:
        view = patches[block]
        return view.reshape(len(view), groups, -1, height * width * fan_in)

    def recomputed(weights: Tensor) -> Tensor:
        return _convolution_weight(module, padded.permute(0, 3, 1, 2), g * weights[:, None, None, None])

    def weight() -> SampleGradient:
        if module.in_channels == module.out_channels == groups:
            return written_out(_depthwise(patches, output.view(samples, g.shape[2], g.shape[3], groups)))
        gradient = _products(output.transpose(1, 2), right, height * width * fan_in, recomputed)
        if gradient.weighted is recomputed:
            return gradient
        kernel = (module.out_channels, height * width, fan_in)
        return SampleGradient(gradient.squares, lambda weights: gradient.weighted(weights).view(kernel).mT.flatten())

    return _trained(module, weight, lambda: output.flatten(2).sum(1))


def _patches(padded: Tensor, module: nn.Conv2d, output: tuple[int, int]) -> Tensor:
    """A view (B, G, out height, out width, kernel height, kernel width, C / G) of channels-last images (B, H, W, C)."""
    samples, _, row, channels = padded.shape
    fan_in = channels // module.groups
    down, right = row * channels, channels
    return padded.as_strided(
        (samples, module.groups, *output, *module.kernel_size, fan_in),
        (
            padded.stride(0),
            fan_in,
            down * module.stride[0],
            right * module.stride[1],
            down * module.dilation[0],
            right * module.dilation[1],
            1,
        ),
    )


def _depthwise(patches: Tensor, output: Tensor) -> Tensor:
    """Rows (B, C * kernel): each channel meets its own output only, a product too thin for a matrix multiplication."""
    _, _, _, _, height, width, _ = patches.shape
    images = patches.squeeze(6).permute(4, 5, 0, 2, 3, 1)
    places = [images[i, j] for i in range(height) for j in range(width)]
    return torch.stack([(place * output).sum((1, 2)) for place in places], dim=2).flatten(1)


def _convolution_weight(module: nn.Conv2d, padded: Tensor, g: Tensor) -> Tensor:
    _, weight, _ = torch.ops.aten.convolution_backward(
        g, padded, module.weight, None, module.stride, (0, 0), module.dilation, False, (0, 0), module.groups,
        (False, True, False),
    )  # fmt: skip
    return weight.flatten()


def group_norm(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    assert isinstance(module, nn.GroupNorm)

    def per_channel(values: Tensor) -> Tensor:
        return values.flatten(2).sum(2) if values.dim() > 2 else values

    def weight() -> SampleGradient:
        return written_out(per_channel(F.group_norm(x, module.num_groups, None, None, module.eps) * g))

    return _trained(module, weight, lambda: per_channel(g))


def layer_norm(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    assert isinstance(module, nn.LayerNorm)
    shape = module.normalized_shape
    if x.dim() <= len(shape):
        raise Unsupported("a layer norm that includes the batch dimension")
    size = int(torch.Size(shape).numel())

    def per_entry(values: Tensor) -> Tensor:
        return values.reshape(len(values), -1, size).sum(1)

    def weight() -> SampleGradient:
        return written_out(per_entry(F.layer_norm(x, shape, None, None, module.eps) * g))

    return _trained(module, weight, lambda: per_entry(g))


def embedding(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    assert isinstance(module, nn.Embedding)
    words = x.reshape(len(x), -1)
    g = g.reshape(*words.shape, module.embedding_dim)
    if module.padding_idx is not None:
        g = g * (words != module.padding_idx).unsqueeze(2)
    same = words.unsqueeze(1) == words.unsqueeze(2)
    squares = ((g @ g.mT) * same).sum((1, 2)).clamp_min(0)

    def weighted(weights: Tensor) -> Tensor:
        total = g.new_zeros(module.num_embeddings, module.embedding_dim)
        return total.index_add_(0, words.flatten(), (g * weights[:, None, None]).flatten(0, 1)).flatten()

    return {"weight": SampleGradient(squares, weighted)}


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Conv2d: convolution,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.Embedding: embedding,
}


def rule_for(module: nn.Module) -> Rule | None:
    """None when the module may compute something else than its type says: a subclass, a patch, a parametrisation."""
    known = {name for name, _ in module.named_parameters(recurse=False)} <= {"weight", "bias"}
    plain = "forward" not in module.__dict__ and not list(module.children())
    return RULES.get(type(module)) if known and plain else None
