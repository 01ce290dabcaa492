"""Rules: the gradient of each unit at one layer, from its input x and the gradient g at its output.

The loss of a sample reaches a layer's parameters only through its output y. So with g = dL/dy, for
one sample:

- linear, y = W x + b: dL/dW = sum_t g_t x_t^T over the positions t, dL/db = sum_t g_t.
- convolution: the same with x_t the patch under output position t (Rochette et al. 2019).
- normalisation, y = w n(x) + b: dL/dw = sum_t g_t n(x_t), dL/db = sum_t g_t.
- embedding, y_t = W[x_t]: row v of dL/dW is the sum of g_t over the positions with x_t = v.

A rule is used only where the module does what its type says (`rule_for`). What a rule does not
cover raises `UnsupportedLayer`, and a slower pass takes the model.

Reference: Rochette, Manoel, Tramel (2019), Efficient per-example gradient computations in
convolutional neural networks, arXiv:1912.06015.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.gradients.layers.convolution import convolution_weight
from dpfl.gradients.products import outer, sum_of_outer
from dpfl.gradients.unit_gradients import (
    UnitGradients,
    UnitIndex,
    UnsupportedLayer,
    empty_sum,
    from_rows,
)
from dpfl.gradients.unit_rows import UnitRows
from dpfl.privacy.mechanisms.clips.rounding import COVER, TERMS, cover_cancellation, squared_norms

LayerGradients = dict[str, UnitGradients]
Rule = Callable[[nn.Module, Tensor, Tensor], LayerGradients]

# The most numbers that the comparison of all words of a sample with each other takes at a time.
_WORD_PAIRS = 1 << 22
# The most words of a unit that are compared in pairs. With more words, the gradients of its rows
# are written out.
_MOST_WORDS = 1 << 11
# Gradients of all units of a chunk that have at most so many numbers are written out, which is
# quicker than a comparison of their rows.
_SMALL = 1 << 18


def _collect_gradients(
    module: nn.Module,
    weight: Callable[[], UnitGradients],
    bias: Callable[[], Tensor],
    squares: Tensor | None = None,
) -> LayerGradients:
    """Collects the gradients of trained parameters; nothing for a frozen or absent parameter.

    `squares` are the squared norms of the bias's gradients, where they are known.
    """
    named_parameters = module.named_parameters(recurse=False)
    trained_names = {name for name, parameter in named_parameters if parameter.requires_grad}
    gradients = {"weight": weight()} if "weight" in trained_names else {}
    if "bias" in trained_names:
        gradients["bias"] = from_rows(bias(), squares)
    return gradients


def linear(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    """Applies the rule of `nn.Linear`: sum_t g_t x_t^T and sum_t g_t.

    Args:
        module: The layer.
        x: Its input (B, ..., in).
        g: The gradient at its output (B, ..., out).

    Returns:
        The gradients of its trained parameters, by name.

    Raises:
        UnsupportedLayer: There is no batch dimension.
    """
    if x.dim() < 2:
        raise UnsupportedLayer("a linear layer without a batch dimension")
    if x.dim() == 2:
        squares = squared_norms(g)
        return _collect_gradients(module, lambda: outer(x, g, squares), lambda: g, squares)
    x, g = x.flatten(1, -2), g.flatten(1, -2)
    return _collect_gradients(module, lambda: sum_of_outer(x, g), lambda: g.sum(1))


def convolution(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    """Applies the rule of `nn.Conv1d` and `nn.Conv2d`: outer products of output gradients and input
    patches.

    Args:
        module: The layer.
        x: Its input (B, channels, ...).
        g: The gradient at its output (B, channels, ...).

    Returns:
        The gradients of its trained parameters, by name.
    """
    return _collect_gradients(
        module, lambda: convolution_weight(module, x, g), lambda: g.flatten(2).sum(2)
    )


def group_norm(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    """Applies the rule of `nn.GroupNorm`: sums over positions of g n(x), and of g.

    Args:
        module: The layer.
        x: Its input (B, channels, ...).
        g: The gradient at its output, of the same shape.

    Returns:
        The gradients of its trained parameters, by name.
    """
    assert isinstance(module, nn.GroupNorm)

    def per_channel(values: Tensor) -> Tensor:
        return values.flatten(2).sum(2) if values.dim() > 2 else values

    def weight() -> UnitGradients:
        return from_rows(
            per_channel(F.group_norm(x, module.num_groups, None, None, module.eps) * g)
        )

    return _collect_gradients(module, weight, lambda: per_channel(g))


def layer_norm(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    """Applies the rule of `nn.LayerNorm` and `nn.RMSNorm`: sums over positions of g n(x), and of g.

    Args:
        module: The layer.
        x: Its input (B, ..., normalised shape).
        g: The gradient at its output, of the same shape.

    Returns:
        The gradients of its trained parameters, by name.

    Raises:
        UnsupportedLayer: The normalised shape includes the batch dimension.
    """
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    shape, eps = list(module.normalized_shape), module.eps
    if x.dim() <= len(shape):
        raise UnsupportedLayer("a layer norm that includes the batch dimension")
    size = int(torch.Size(shape).numel())

    def per_entry(values: Tensor) -> Tensor:
        return values.reshape(len(values), -1, size).sum(1)

    def weight() -> UnitGradients:
        if isinstance(module, nn.RMSNorm):
            return from_rows(per_entry(F.rms_norm(x, shape, None, eps) * g))
        return from_rows(per_entry(F.layer_norm(x, shape, None, None, module.eps) * g))

    return _collect_gradients(module, weight, lambda: per_entry(g))


def embedding(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    """Applies the rule of `nn.Embedding`: g_t is added to the row of the token at position t.

    A token's row is the sum of g_t over its positions, so the squared norm compares all pairs of
    positions of a unit, a ghost norm as well (Li et al. 2021).

    Args:
        module: The layer.
        x: Its tokens (B, ...).
        g: The gradient at its output (B, ..., width).

    Returns:
        The gradient of its weight.
    """
    assert isinstance(module, nn.Embedding)
    words = x.reshape(len(x), -1)
    g = g.reshape(*words.shape, module.embedding_dim)
    if module.padding_idx is not None:
        g = g * (words != module.padding_idx).unsqueeze(2)
    size = (module.num_embeddings, module.embedding_dim)

    def weighted_sum(units: UnitIndex, weights: Tensor, out: Tensor | None = None) -> Tensor:
        total = (empty_sum(size[0] * size[1]) if out is None else out).zero_().view(size)
        step = max(1, TERMS // max(1, words.shape[1]))
        for some, slopes, own in zip(
            words[units].split(step), g[units].split(step), weights.split(step), strict=True
        ):
            part = torch.zeros(size, dtype=torch.float64)
            total += part.index_add_(
                0, some.flatten(), (slopes.double() * own[:, None, None]).flatten(0, 1)
            )
        return total.flatten()

    def rows(block: slice) -> Tensor:
        some = words[block]
        places = some + module.num_embeddings * torch.arange(len(some)).unsqueeze(1)
        total = g.new_zeros(len(some) * size[0], size[1])
        return total.index_add_(0, places.flatten(), g[block].flatten(0, 1)).view(len(some), -1)

    step = max(1, _WORD_PAIRS // max(1, words.shape[1] ** 2))
    pairs = zip(words.split(step), g.split(step), strict=True)
    squares = torch.cat([_word_squares(*pair) for pair in pairs])
    additions = (
        len(words) + words.shape[1]
    )  # of units that are added one by one, and of one word's places in a unit
    return {"weight": UnitGradients(squares, weighted_sum, rows, 1 / COVER, (words, g), additions)}


def _word_squares(words: Tensor, g: Tensor) -> Tensor:
    """Computes the squared norms of an embedding's gradients. A token's gradient is the sum over
    its places, and each of its n places adds 1 / n of the square.
    """
    same, g = (words.unsqueeze(1) == words.unsqueeze(2)).double(), g.double()
    squares = ((same @ g).square().sum(2) / same.sum(2)).sum(1)
    return cover_cancellation(squares, g.square().sum(2).sqrt().sum(1), 1)


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.RMSNorm: layer_norm,
    nn.Embedding: embedding,
}


def rule_for(module: nn.Module) -> Rule | None:
    """Finds the rule of a layer.

    Args:
        module: The layer.

    Returns:
        The rule, or None where the module may compute something else than its type says: a
        subclass, a patched method, a parametrisation.
    """
    usual = {name for name, _ in module.named_parameters(recurse=False)} <= {"weight", "bias"}
    plain = "forward" not in module.__dict__ and not list(module.children())
    return RULES.get(type(module)) if usual and plain else None


def unit_gradients(
    rule: Rule, module: nn.Module, x: Tensor, g: Tensor, rows: UnitRows | None
) -> LayerGradients:
    """Computes the gradients of the units of a chunk by a layer's rule.

    Where the layer has positions, the rows of a unit become positions of one sample: sum_r sum_t
    g_rt x_rt^T is again a sum of outer products. Otherwise the gradients of the rows are written
    out and summed.

    Args:
        rule: The rule of the layer.
        module: The layer.
        x: Its input, of all rows.
        g: The gradient at its output, times each row's share.
        rows: The rows of each unit; without it, every row is a unit.

    Returns:
        The gradients of its trained parameters, by name.
    """
    if rows is None or rows.per_unit == 1:
        return rule(module, x, g)
    if rule is linear:
        inputs, outputs = positions(x, g, rows)
        return _collect_gradients(
            module, lambda: sum_of_outer(inputs, outputs, _SMALL), lambda: outputs.sum(1)
        )
    if rule is embedding and rows.per_unit * x[0].numel() <= _MOST_WORDS:
        return rule(module, rows.by_unit(x), rows.by_unit(g))
    return {name: rows.sum_over_rows(gradient) for name, gradient in rule(module, x, g).items()}


def positions(x: Tensor, g: Tensor, rows: UnitRows) -> tuple[Tensor, Tensor]:
    """Makes the rows of a unit positions of one sample.

    Args:
        x: The inputs (rows, ..., in) of a linear map.
        g: The gradients (rows, ..., out) at its outputs.
        rows: The rows of each unit.

    Returns:
        The same as (units, positions, in) and (units, positions, out).
    """
    return rows.by_unit(x).flatten(1, -2), rows.by_unit(g).flatten(1, -2)


def join_calls(rule: Rule, calls: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Makes several calls of a layer in one forward pass one call on more positions.

    Args:
        rule: The rule of the layer.
        calls: The input and the output gradient of each call.

    Returns:
        One input and one output gradient.

    Raises:
        UnsupportedLayer: The layer has no positions.
    """
    if rule not in (linear, embedding):
        raise UnsupportedLayer(f"a layer called {len(calls)} times in one forward pass")
    width = 0 if rule is embedding else 1
    xs = [x.reshape(len(x), -1, *x.shape[x.dim() - width :]) for x, _ in calls]
    gs = [g.reshape(len(g), -1, g.shape[-1]) for _, g in calls]
    return torch.cat(xs, dim=1), torch.cat(gs, dim=1)
