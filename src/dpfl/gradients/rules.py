"""Rules: per-sample gradients of one layer, from its input and the gradient at its output."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.gradients.convolution import convolution_weight
from dpfl.gradients.products import (
    Chosen,
    SampleGradient,
    Unsupported,
    doubles,
    outer,
    sum_of_outer,
    written_out,
)
from dpfl.gradients.unit_rows import UnitRows
from dpfl.privacy.mechanisms.rounding import COVER, TERMS, cover_cancellation, squared_norms

LayerGradients = dict[str, SampleGradient]
Rule = Callable[[nn.Module, Tensor, Tensor], LayerGradients]

# Numbers: what the comparison of all words of a sample with each other may take at a time.
_WORD_PAIRS = 1 << 22
# Of a unit, whose square is what is compared; with more words, the gradients of its rows are
# written out.
_MOST_WORDS = 1 << 11
# Numbers: gradients of all units of a chunk that are written out sooner than their rows are
# compared.
_SMALL = 1 << 18


def _trained(
    module: nn.Module,
    weight: Callable[[], SampleGradient],
    bias: Callable[[], Tensor],
    squares: Tensor | None = None,
) -> LayerGradients:
    """Computes what is trained, and nothing for a frozen or absent parameter; `squares` are those
    of the bias, if known.
    """
    wanted = {
        name
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.requires_grad
    }
    gradients = {"weight": weight()} if "weight" in wanted else {}
    if "bias" in wanted:
        gradients["bias"] = written_out(bias(), squares)
    return gradients


def linear(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    if x.dim() < 2:
        raise Unsupported("a linear layer without a batch dimension")
    if x.dim() == 2:
        squares = squared_norms(g)
        return _trained(module, lambda: outer(x, g, squares), lambda: g, squares)
    x, g = x.flatten(1, -2), g.flatten(1, -2)
    return _trained(module, lambda: sum_of_outer(x, g), lambda: g.sum(1))


def convolution(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    return _trained(module, lambda: convolution_weight(module, x, g), lambda: g.flatten(2).sum(2))


def group_norm(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    assert isinstance(module, nn.GroupNorm)

    def per_channel(values: Tensor) -> Tensor:
        return values.flatten(2).sum(2) if values.dim() > 2 else values

    def weight() -> SampleGradient:
        return written_out(
            per_channel(F.group_norm(x, module.num_groups, None, None, module.eps) * g)
        )

    return _trained(module, weight, lambda: per_channel(g))


def layer_norm(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    assert isinstance(module, nn.LayerNorm | nn.RMSNorm)
    shape, eps = list(module.normalized_shape), module.eps
    if x.dim() <= len(shape):
        raise Unsupported("a layer norm that includes the batch dimension")
    size = int(torch.Size(shape).numel())

    def per_entry(values: Tensor) -> Tensor:
        return values.reshape(len(values), -1, size).sum(1)

    def weight() -> SampleGradient:
        if isinstance(module, nn.RMSNorm):
            return written_out(per_entry(F.rms_norm(x, shape, None, eps) * g))
        return written_out(per_entry(F.layer_norm(x, shape, None, None, module.eps) * g))

    return _trained(module, weight, lambda: per_entry(g))


def embedding(module: nn.Module, x: Tensor, g: Tensor) -> LayerGradients:
    assert isinstance(module, nn.Embedding)
    words = x.reshape(len(x), -1)
    g = g.reshape(*words.shape, module.embedding_dim)
    if module.padding_idx is not None:
        g = g * (words != module.padding_idx).unsqueeze(2)
    size = (module.num_embeddings, module.embedding_dim)

    def weighted(units: Chosen, weights: Tensor, out: Tensor | None = None) -> Tensor:
        total = (doubles(size[0] * size[1]) if out is None else out).zero_().view(size)
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
    return {"weight": SampleGradient(squares, weighted, rows, 1 / COVER, (words, g), additions)}


def _word_squares(words: Tensor, g: Tensor) -> Tensor:
    """A word's gradient is the sum over its places; each of its n places then brings a share 1 / n
    of the square.
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
    """None when the module may compute something else than its type says: a subclass, a patch, a
    parametrisation.
    """
    known = {name for name, _ in module.named_parameters(recurse=False)} <= {"weight", "bias"}
    plain = "forward" not in module.__dict__ and not list(module.children())
    return RULES.get(type(module)) if known and plain else None


def of_units(
    rule: Rule, module: nn.Module, x: Tensor, g: Tensor, rows: UnitRows | None
) -> LayerGradients:
    """The rows of a unit as places of one sample, where the layer has places and its own batch
    dimension; else summed.
    """
    if rows is None or rows.per_unit == 1:
        return rule(module, x, g)
    if rule is linear:
        inputs, outputs = places(x, g, rows)
        return _trained(
            module, lambda: sum_of_outer(inputs, outputs, _SMALL), lambda: outputs.sum(1)
        )
    if rule is embedding and rows.per_unit * x[0].numel() <= _MOST_WORDS:
        return rule(module, rows.by_unit(x), rows.by_unit(g))
    return {name: rows.summed(gradient) for name, gradient in rule(module, x, g).items()}


def places(x: Tensor, g: Tensor, rows: UnitRows) -> tuple[Tensor, Tensor]:
    """Inputs (rows, ..., in) and outputs (rows, ..., out) of a linear map: (units, places, in) and
    (units, places, out).
    """
    return rows.by_unit(x).flatten(1, -2), rows.by_unit(g).flatten(1, -2)


def joined(rule: Rule, calls: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Several calls of a layer in one forward pass as one call on more places, where the layer has
    places.
    """
    if rule not in (linear, embedding):
        raise Unsupported(f"a layer called {len(calls)} times in one forward pass")
    width = 0 if rule is embedding else 1
    xs = [x.reshape(len(x), -1, *x.shape[x.dim() - width :]) for x, _ in calls]
    gs = [g.reshape(len(g), -1, g.shape[-1]) for _, g in calls]
    return torch.cat(xs, dim=1), torch.cat(gs, dim=1)
