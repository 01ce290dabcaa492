"""Records what the layers of a model saw in one forward pass.

A record has each layer's inputs, and where in autograd's graph its outputs are. A rule holds only
if the losses see a parameter through the recorded calls and in no other way, so a record also
counts how often the graph reads each parameter.
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

from dpfl.gradients.layers.rules import Rule, rule_for
from dpfl.gradients.layers.unrolled import UnrolledLayer, unrolled_for
from dpfl.gradients.unit_gradients import UnsupportedLayer
from dpfl.models import FlatModel


@dataclass(frozen=True)
class Layer:
    """A layer with a rule.

    Attributes:
        module: The layer.
        rule: Its rule, or how it is computed from linear maps.
        entries: The layout entries of its trained parameters, by name.
    """

    module: nn.Module
    rule: Rule | UnrolledLayer
    entries: dict[str, int]

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.module).__name__


@dataclass(frozen=True)
class Tap:
    """One linear map, or one whole layer, in one call of its layer.

    Attributes:
        name: The name of the linear map; empty for a whole layer.
        call: The number of the call.
        x: The input.
        version: torch's count of in-place changes of the input at the time of the call.
        edge: The output's place in the graph.
    """

    name: str
    call: int
    x: Tensor
    version: int
    edge: GradientEdge


@dataclass
class Record:
    """The record of one layer's calls.

    Attributes:
        layer: The layer.
        calls: How often it was called.
        taps: Its linear maps, call by call.
    """

    layer: Layer
    calls: int = 0
    taps: list[Tap] = field(default_factory=list)

    def hook(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Records a call of a layer that is computed by torch; the signature is that of a forward
        hook.

        Args:
            module: The layer.
            inputs: The arguments of the call.
            output: The result of the call.

        Raises:
            UnsupportedLayer: The layer was called with keywords only, or without gradients.
        """
        if not inputs:
            raise UnsupportedLayer(f"a {self.layer.name} called with keywords only")
        self.calls += 1
        self._tap("", inputs[0], output)

    def forward(self, unrolled_layer: UnrolledLayer, *inputs: Any, **options: Any) -> Any:
        """Computes and records a call of a layer that is made of linear maps.

        Args:
            unrolled_layer: How the layer is computed.
            inputs: The arguments of the call.
            options: Its keyword arguments.

        Returns:
            What the layer returns.
        """
        self.calls += 1
        # Read once a call, however many maps and steps use it, so that uses outside the call can be
        # told.
        own = {
            name: parameter.view_as(parameter)
            for name, parameter in self.layer.module.named_parameters()
        }

        def project(name: str, x: Tensor) -> Tensor:
            linear_map = unrolled_layer.maps[name]
            weight, bias = (
                own[linear_map.weight],
                None if linear_map.bias is None else own[linear_map.bias],
            )
            output = F.linear(
                x,
                weight[linear_map.weight_rows],
                None if bias is None else bias[linear_map.bias_rows],
            )
            if linear_map.weight in self.layer.entries or linear_map.bias in self.layer.entries:
                self._tap(name, x, output)
            return output

        return unrolled_layer.forward(self.layer.module, project, *inputs, **options)

    def _tap(self, name: str, x: Tensor, output: Tensor) -> None:
        if not output.requires_grad:
            raise UnsupportedLayer(f"a {self.layer.name} called without gradients")
        x = x.detach()
        # An edge, unlike the tensor, still means this output after an in-place activation.
        self.taps.append(Tap(name, self.calls, x, x._version, get_gradient_edge(output)))

    def check(
        self,
        gradients: Sequence[Tensor | None],
        uses: Counter[int],
        parameters: Sequence[nn.Parameter],
    ) -> None:
        """Refuses a layer whose rule does not hold in this pass.

        The rule holds only if the loss sees the parameters through the recorded calls and in no
        other way.

        Args:
            gradients: The gradients at the outputs of the taps, None where the loss does not see
                one.
            uses: How often the graph reads each parameter, by id.
            parameters: The model's parameters.

        Raises:
            UnsupportedLayer: A parameter is used elsewhere, or an input was overwritten.
        """
        reached_taps = [tap for tap, g in zip(self.taps, gradients, strict=True) if g is not None]
        for name, entry in self.layer.entries.items():
            if uses[id(parameters[entry])] != len(
                {tap.call for tap in reached_taps if self._reads(tap, name)}
            ):
                raise UnsupportedLayer(f"parameters of a {self.layer.name} used outside its call")
        if any(tap.x._version != tap.version for tap in reached_taps):
            raise UnsupportedLayer(f"a {self.layer.name} whose input is overwritten later")

    def _reads(self, tap: Tap, name: str) -> bool:
        if not isinstance(self.layer.rule, UnrolledLayer):
            return True
        linear_map = self.layer.rule.maps[tap.name]
        return name in (linear_map.weight, linear_map.bias)


def find_layers(model: FlatModel) -> list[Layer]:
    """Finds the layers of a model that have trained parameters.

    Args:
        model: The model.

    Returns:
        The layers, in the order of its modules.

    Raises:
        UnsupportedLayer: A trained parameter is in a layer without a rule, or in several layers.
    """
    entry_of = {id(parameter): entry for entry, parameter in enumerate(model.parameters)}
    owners: Counter[int] = Counter()
    inside: set[nn.Module] = set()
    layers = []
    for module in model.module.modules():
        unrolled_layer = unrolled_for(module)
        inside.update(module.children() if unrolled_layer else ())
        own = dict(
            module.named_parameters(recurse=unrolled_layer is not None, remove_duplicate=False)
        )
        entries = {
            name: entry_of[id(parameter)]
            for name, parameter in own.items()
            if id(parameter) in entry_of
        }
        if not entries or module in inside:
            continue
        rule = unrolled_layer or rule_for(module)
        if rule is None:
            raise UnsupportedLayer(f"trainable parameters in a {type(module).__name__}")
        owners.update(entries.values())
        layers.append(Layer(module, rule, entries))
    if any(count > 1 for count in owners.values()):
        raise UnsupportedLayer("tied parameters")
    return layers


@contextmanager
def recording(layers: Sequence[Layer]) -> Iterator[list[Record]]:
    """Records the calls of layers made inside.

    Args:
        layers: The layers.

    Yields:
        One record for each layer. Hooks and methods are removed at the end.
    """
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
    """Counts how often the graph of the losses reads each parameter.

    Args:
        losses: The losses, with their graph.

    Returns:
        The counts, by the parameter's id.
    """
    uses: Counter[int] = Counter()
    visited_nodes, waiting = set(), [losses.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in visited_nodes:
            continue
        visited_nodes.add(node)
        for child, _ in node.next_functions:
            if child is not None and hasattr(child, "variable"):
                uses[id(child.variable)] += 1
            else:
                waiting.append(child)
    return uses
