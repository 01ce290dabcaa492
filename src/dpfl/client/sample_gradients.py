"""Per-sample gradients of a batch: `LayerPass` by hooks in one backward pass, `RowPass` for any other module."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad_and_value, vmap

from dpfl.client.layer_gradients import Rule, SampleGradient, Unsupported, rule_for, written_out
from dpfl.errors import DpflError
from dpfl.models import FlatModel
from dpfl.models.flat import evaluating

_log = logging.getLogger("dpfl")


def sample_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each sample; the mean over positions where a sample has several."""
    if not isinstance(logits, Tensor) or logits.shape[:1] != y.shape[:1]:
        raise DpflError("The model must return one tensor of scores (samples, classes), a row for each sample of the batch.")
    losses = F.cross_entropy(logits, y, reduction="none")
    return losses if losses.dim() == 1 else losses.flatten(1).mean(1)


@dataclass(frozen=True)
class _Layer:
    """A layer with a rule; entries maps the names of its trainable parameters to layout entries."""

    module: nn.Module
    rule: Rule
    entries: dict[str, int]


@dataclass
class _Call:
    """What a hook saw of one layer in one forward pass."""

    count: int = 0
    x: Tensor = field(default_factory=lambda: torch.empty(0))
    version: int = 0
    edge: GradientEdge | None = None

    def hook(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if not inputs:
            raise Unsupported(f"a {type(module).__name__} called with keywords only")
        self.count += 1
        self.x = inputs[0].detach()
        self.version = self.x._version
        # An edge, unlike the tensor, still means this output after an in-place activation.
        self.edge = get_gradient_edge(output) if output.requires_grad else None


class LayerPass:
    """One forward and one backward pass; raises Unsupported rather than guess."""

    def __init__(self, model: FlatModel) -> None:
        self.model = model
        self.layers = _find_layers(model)
        self._probed = False

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[SampleGradient]]:
        x = self.model.arrange(x)
        if not self._probed:
            self._probe(x[:1])
        with torch.enable_grad(), _recording(self.layers) as calls:
            losses = sample_losses(self.model.module(x), y)
        uses = _uses(losses)
        edges = [call.edge for call in calls if call.edge is not None]
        ones = torch.ones_like(losses)
        outputs = iter(torch.autograd.grad(losses, edges, ones, allow_unused=True) if edges else ())
        gradients = {}
        for layer, call in zip(self.layers, calls, strict=True):
            g = next(outputs) if call.edge is not None else None
            _check_call(layer, call, g, {uses[id(self.model.parameters[entry])] for entry in layer.entries.values()})
            found = {} if g is None else layer.rule(layer.module, call.x, g)
            for name, entry in layer.entries.items():
                gradients[entry] = found[name] if g is not None else self._nothing(entry, len(x))
        return losses.detach(), [gradients[entry] for entry in range(len(gradients))]

    def _nothing(self, entry: int, samples: int) -> SampleGradient:
        zeros = torch.zeros_like(self.model.parameters[entry]).flatten()
        return SampleGradient(zeros.new_zeros(samples), lambda _: zeros)

    def _probe(self, x: Tensor) -> None:
        """The rules take the first dimension for the samples: true of one batch by chance, of two sizes by design."""
        for size in (2, 3):
            batch = self.model.arrange(x.expand(size, *x.shape[1:]).contiguous())
            with evaluating(self.model.module), _recording(self.layers) as calls:
                self.model.module(batch)
            for layer, call in zip(self.layers, calls, strict=True):
                if call.count and call.x.shape[:1] != (size,):
                    raise Unsupported(f"a {type(layer.module).__name__} whose first dimension is not the batch")
        self._probed = True


def _find_layers(model: FlatModel) -> list[_Layer]:
    entry_of = {id(parameter): entry for entry, parameter in enumerate(model.parameters)}
    owners: Counter[int] = Counter()
    layers = []
    for module in model.module.modules():
        own = dict(module.named_parameters(recurse=False, remove_duplicate=False))
        entries = {name: entry_of[id(parameter)] for name, parameter in own.items() if id(parameter) in entry_of}
        if not entries:
            continue
        rule = rule_for(module)
        if rule is None:
            raise Unsupported(f"trainable parameters in a {type(module).__name__}")
        owners.update(entries.values())
        layers.append(_Layer(module, rule, entries))
    if any(count > 1 for count in owners.values()):
        raise Unsupported("tied parameters")
    return layers


@contextmanager
def _recording(layers: Sequence[_Layer]) -> Iterator[list[_Call]]:
    calls = [_Call() for _ in layers]
    handles = []
    try:
        for layer, call in zip(layers, calls, strict=True):
            # First in line, so that a user's own hook cannot change what is seen.
            handles.append(layer.module.register_forward_hook(call.hook, prepend=True))
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _uses(losses: Tensor) -> Counter[int]:
    """How often the graph of the losses reads each parameter, by id."""
    uses: Counter[int] = Counter()
    seen, waiting = set(), [losses.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for child, _ in node.next_functions:
            if child is not None and hasattr(child, "variable"):
                uses[id(child.variable)] += 1
            else:
                waiting.append(child)
    return uses


def _check_call(layer: _Layer, call: _Call, g: Tensor | None, uses: set[int]) -> None:
    """The rule holds only if the loss sees the parameters through this one call and nothing else."""
    name = type(layer.module).__name__
    if call.count > 1:
        raise Unsupported(f"a {name} called {call.count} times in one forward pass")
    if call.count and call.edge is None:
        raise Unsupported(f"a {name} called without gradients")
    if uses != {0 if g is None else 1}:
        raise Unsupported(f"parameters of a {name} used outside its call")
    if call.x._version != call.version:
        raise Unsupported(f"a {name} whose input is overwritten later")


class RowPass:
    """Writes out each sample's whole gradient, by torch.func, or sample by sample where that does not work."""

    def __init__(self, model: FlatModel) -> None:
        self.model = model
        self._rows = self._vectorised

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[SampleGradient]]:
        try:
            losses, rows = self._rows(x, y)
        except (RuntimeError, ValueError, TypeError) as error:
            if self._rows == self._one_by_one:
                raise
            _log.info("torch.func cannot vectorise this model (%s): per-sample gradients one by one.", error)
            self._rows = self._one_by_one
            losses, rows = self._rows(x, y)
        return losses, [written_out(rows[:, self.model.layout.span(e)]) for e in range(len(self.model.parameters))]

    def _vectorised(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        names = self.model.layout.names[: len(self.model.parameters)]
        parameters = dict(zip(names, (p.detach() for p in self.model.parameters), strict=True))

        def loss(values: dict[str, Tensor], sample: Tensor, label: Tensor) -> Tensor:
            logits = functional_call(self.model.module, values, (sample.unsqueeze(0),))
            return sample_losses(logits, label.unsqueeze(0)).sum()

        per_sample = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
        gradients, losses = per_sample(parameters, x, y)
        return losses, torch.cat([gradients[name].flatten(1) for name in names], dim=1)

    def _one_by_one(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        losses, rows = [], x.new_empty(len(x), self.model.layout.trainable, dtype=torch.float32)
        for row, sample, label in zip(rows, x, y, strict=True):
            with torch.enable_grad():
                loss = sample_losses(self.model.module(sample.unsqueeze(0)), label.unsqueeze(0)).sum()
            torch.cat([g.flatten() for g in gradients_of(loss, self.model)], out=row)
            losses.append(loss.detach())
        return torch.stack(losses), rows


def gradients_of(loss: Tensor, model: FlatModel) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, model.parameters, materialize_grads=True)
