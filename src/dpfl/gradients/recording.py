"""What the layers of a model saw in one forward pass: inputs, and where in the graph their outputs
are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dpfl.gradients.products import Unsupported
from dpfl.gradients.rules import Rule, rule_for
from dpfl.gradients.unrolled import UnrolledLayer, unrolled_for
from dpfl.models import FlatModel


@dataclass(frozen=True)
class Layer:
    """A layer with a rule; entries maps the names of its trainable parameters to layout entries."""

    module: nn.Module
    rule: Rule | UnrolledLayer
    entries: dict[str, int]

    @property
    def name(self) -> str:
        return type(self.module).__name__


@dataclass(frozen=True)
class Tap:
    """One linear map (or one whole layer, without a name) in one call of its layer."""

    name: str
    call: int
    x: Tensor
    version: int
    edge: GradientEdge


@dataclass
class Record:
    """What was seen of one layer."""

    layer: Layer
    calls: int = 0
    taps: list[Tap] = field(default_factory=list)

    def hook(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if not inputs:
            raise Unsupported(f"a {self.layer.name} called with keywords only")
        self.calls += 1
        self._tap("", inputs[0], output)

    def forward(self, unrolled: UnrolledLayer, *inputs: Any, **options: Any) -> Any:
        self.calls += 1
        # Read once a call, however many maps and steps use it, so that uses outside the call can be
        # told.
        own = {
            name: parameter.view_as(parameter)
            for name, parameter in self.layer.module.named_parameters()
        }

        def project(name: str, x: Tensor) -> Tensor:
            used = unrolled.maps[name]
            weight, bias = own[used.weight], None if used.bias is None else own[used.bias]
            output = F.linear(
                x, weight[used.weight_rows], None if bias is None else bias[used.bias_rows]
            )
            if used.weight in self.layer.entries or used.bias in self.layer.entries:
                self._tap(name, x, output)
            return output

        return unrolled.forward(self.layer.module, project, *inputs, **options)

    def _tap(self, name: str, x: Tensor, output: Tensor) -> None:
        if not output.requires_grad:
            raise Unsupported(f"a {self.layer.name} called without gradients")
        x = x.detach()
        # An edge, unlike the tensor, still means this output after an in-place activation.
        self.taps.append(Tap(name, self.calls, x, x._version, get_gradient_edge(output)))

    def check(
        self,
        gradients: Sequence[Tensor | None],
        uses: Counter[int],
        parameters: Sequence[nn.Parameter],
    ) -> None:
        """The rule holds only if the loss sees the parameters through these calls and nothing
        else.
        """
        reached = [tap for tap, g in zip(self.taps, gradients, strict=True) if g is not None]
        for name, entry in self.layer.entries.items():
            if uses[id(parameters[entry])] != len(
                {tap.call for tap in reached if self._reads(tap, name)}
            ):
                raise Unsupported(f"parameters of a {self.layer.name} used outside its call")
        if any(tap.x._version != tap.version for tap in reached):
            raise Unsupported(f"a {self.layer.name} whose input is overwritten later")

    def _reads(self, tap: Tap, name: str) -> bool:
        if not isinstance(self.layer.rule, UnrolledLayer):
            return True
        used = self.layer.rule.maps[tap.name]
        return name in (used.weight, used.bias)


def find_layers(model: FlatModel) -> list[Layer]:
    entry_of = {id(parameter): entry for entry, parameter in enumerate(model.parameters)}
    owners: Counter[int] = Counter()
    inside: set[nn.Module] = set()
    layers = []
    for module in model.module.modules():
        unrolled = unrolled_for(module)
        inside.update(module.children() if unrolled else ())
        own = dict(module.named_parameters(recurse=unrolled is not None, remove_duplicate=False))
        entries = {
            name: entry_of[id(parameter)]
            for name, parameter in own.items()
            if id(parameter) in entry_of
        }
        if not entries or module in inside:
            continue
        rule = unrolled or rule_for(module)
        if rule is None:
            raise Unsupported(f"trainable parameters in a {type(module).__name__}")
        owners.update(entries.values())
        layers.append(Layer(module, rule, entries))
    if any(count > 1 for count in owners.values()):
        raise Unsupported("tied parameters")
    return layers


@contextmanager
def recording(layers: Sequence[Layer]) -> Iterator[list[Record]]:
    records = [Record(layer) for layer in layers]
    handles = []
    try:
        for record in records:
            module, rule = record.layer.module, record.layer.rule
            if isinstance(rule, UnrolledLayer):
                module.__dict__["forward"] = partial(record.forward, rule)
            else:
                # First in line, so that a user's own hook cannot change what is seen.
                handles.append(module.register_forward_hook(record.hook, prepend=True))
        yield records
    finally:
        for handle in handles:
            handle.remove()
        for record in records:
            if isinstance(record.layer.rule, UnrolledLayer):
                record.layer.module.__dict__.pop("forward", None)


def uses_of(losses: Tensor) -> Counter[int]:
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
