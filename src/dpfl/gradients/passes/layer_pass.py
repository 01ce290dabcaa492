"""One forward and one backward pass by autograd, and the rules of the layers.

Hooks record the input of each layer. One backward pass of the summed losses gives the gradient at
each layer's output. Row i of it is the gradient of sample i's loss, as long as no sample reaches
another: a probe with random samples refuses a model where one does.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dpfl.gradients.layers.rules import (
    LayerGradients,
    join_calls,
    linear,
    positions,
    unit_gradients,
)
from dpfl.gradients.layers.unrolled import UnrolledLayer
from dpfl.gradients.losses import checked_scores, sample_losses
from dpfl.gradients.mixing import modes, random_rows, refusal, restoring
from dpfl.gradients.passes.recording import Record, find_layers, recording, uses_of
from dpfl.gradients.scratch import Scratch
from dpfl.gradients.unit_gradients import UnitGradients, UnsupportedLayer, from_rows
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models import FlatModel


class LayerPass:
    """The pass for models whose layers all have a rule.

    It raises `UnsupportedLayer` rather than guess.

    Args:
        model: The model.

    Raises:
        UnsupportedLayer: A trained parameter is in a layer without a rule, or is tied.
    """

    writes_rows: ClassVar[bool] = False

    def __init__(self, model: FlatModel) -> None:
        self.model = model
        self.layers = find_layers(model)
        self._is_probed = False
        self._scratch = Scratch()

    def __call__(
        self, x: Tensor, y: Tensor, rows: UnitRows | None = None
    ) -> tuple[Tensor, list[UnitGradients]]:
        if not self._is_probed:
            self._probe(x)
        with torch.enable_grad(), recording(self.layers) as records:
            losses = sample_losses(self.model.module(self.model.arrange(x)), y, self.model.task)
        uses = uses_of(losses)
        gradients, shares = {}, None if rows is None else rows.shares
        units = len(x) // (rows.per_unit if rows else 1)
        with self._scratch.step():
            for record, outputs in zip(records, _at_outputs(losses, records, shares), strict=True):
                record.check(outputs, uses, self.model.parameters)
                of_layer = _gradients(record, outputs, rows)
                for name, entry in record.layer.entries.items():
                    gradients[entry] = of_layer.get(name) or self._nothing(entry, units)
        return losses.detach(), [gradients[entry] for entry in range(len(gradients))]

    def _nothing(self, entry: int, samples: int) -> UnitGradients:
        zeros = torch.zeros_like(self.model.parameters[entry]).flatten()
        return from_rows(zeros.expand(samples, -1))

    def _probe(self, x: Tensor) -> None:
        with restoring(self.model):
            for mode in modes(self.model.module):
                with mode:
                    self._probe_dimensions(x)
        self._is_probed = True

    def _probe_dimensions(self, x: Tensor) -> None:
        """Refuses layers whose first dimension is not the batch.

        The rules take the first dimension for the samples. That can hold by chance for one batch
        size, so two sizes are tried.
        """
        for size in (2, 3):
            rows = random_rows(self.model, x, size)
            with torch.enable_grad(), recording(self.layers) as records:
                scores = checked_scores(self.model.module(self.model.arrange(rows)), size)
                first = scores[:1].square().sum()
            for record in records:
                if any(tap.x.shape[:1] != (size,) for tap in record.taps):
                    raise UnsupportedLayer(
                        f"a {record.layer.name} whose first dimension is not the batch"
                    )
            for outputs in _at_outputs(first, records):
                if any(
                    g is not None and len(g) == size and g[1:].nan_to_num().any() for g in outputs
                ):
                    raise refusal("the gradients of one sample reach another")


def _at_outputs(
    losses: Tensor, records: list[Record], weights: Tensor | None = None
) -> list[list[Tensor | None]]:
    """Computes the gradient at the output of each tap, or None where the losses do not depend on
    it.

    `weights` are those of the losses in their sum; by default, 1.
    """
    edges = [tap.edge for record in records for tap in record.taps]
    if not edges or not losses.requires_grad:
        return [[None for _ in record.taps] for record in records]
    weights = torch.ones_like(losses) if weights is None else weights
    gradients = iter(torch.autograd.grad(losses, edges, weights, allow_unused=True))
    return [[next(gradients) for _ in record.taps] for record in records]


def _gradients(
    record: Record, outputs: list[Tensor | None], rows: UnitRows | None
) -> LayerGradients:
    layer = record.layer
    pairs = zip(record.taps, outputs, strict=True)
    taps = [(tap.name, tap.x, g) for tap, g in pairs if g is not None]
    if not taps:
        return {}
    if not isinstance(layer.rule, UnrolledLayer):
        calls = [(x, g) for _, x, g in taps]
        x, g = calls[0] if len(calls) == 1 else join_calls(layer.rule, calls)
        return unit_gradients(layer.rule, layer.module, x, g, rows)
    by_map: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, x, g in taps:
        by_map.setdefault(name, []).append((x, g))
    terms = {name: join_calls(linear, calls) for name, calls in by_map.items()}
    if rows is not None:
        terms = {name: positions(x, g, rows) for name, (x, g) in terms.items()}
    return layer.rule.gradients(set(layer.entries), terms)
