"""Per-sample gradients of a batch in one forward and one backward pass, by the rules of the
layers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dpfl.gradients.losses import checked_scores, sample_losses
from dpfl.gradients.mixing import modes, random_rows, refusal, untouched
from dpfl.gradients.products import SampleGradient, Unsupported, written_out
from dpfl.gradients.recording import Record, find_layers, recording, uses_of
from dpfl.gradients.rules import LayerGradients, joined, linear, of_units, places
from dpfl.gradients.scratch import Scratch
from dpfl.gradients.unit_rows import UnitRows
from dpfl.gradients.unrolled import UnrolledLayer
from dpfl.models import FlatModel


class LayerPass:
    """Raises Unsupported rather than guess. What it returns is valid until its next call."""

    def __init__(self, model: FlatModel) -> None:
        self.model = model
        self.layers = find_layers(model)
        self._probed = False
        self._scratch = Scratch()

    def __call__(
        self, x: Tensor, y: Tensor, rows: UnitRows | None = None
    ) -> tuple[Tensor, list[SampleGradient]]:
        if not self._probed:
            self._probe(x)
        with torch.enable_grad(), recording(self.layers) as records:
            losses = sample_losses(self.model.module(self.model.arrange(x)), y, self.model.task)
        uses = uses_of(losses)
        gradients, shares = {}, None if rows is None else rows.shares
        units = len(x) // (rows.per_unit if rows else 1)
        with self._scratch.step():
            for record, outputs in zip(records, _at_outputs(losses, records, shares), strict=True):
                record.check(outputs, uses, self.model.parameters)
                found = _gradients(record, outputs, rows)
                for name, entry in record.layer.entries.items():
                    gradients[entry] = found[name] if name in found else self._nothing(entry, units)
        return losses.detach(), [gradients[entry] for entry in range(len(gradients))]

    def _nothing(self, entry: int, samples: int) -> SampleGradient:
        zeros = torch.zeros_like(self.model.parameters[entry]).flatten()
        return written_out(zeros.expand(samples, -1))

    def _probe(self, x: Tensor) -> None:
        with untouched(self.model):
            for mode in modes(self.model.module):
                with mode:
                    self._probe_dimensions(x)
        self._probed = True

    def _probe_dimensions(self, x: Tensor) -> None:
        """The rules take the first dimension for the samples: true of one batch by chance, of two
        sizes by design.
        """
        for size in (2, 3):
            rows = random_rows(self.model, x, size)
            with torch.enable_grad(), recording(self.layers) as records:
                first = (
                    checked_scores(self.model.module(self.model.arrange(rows)), size)[:1]
                    .square()
                    .sum()
                )
            for record in records:
                if any(tap.x.shape[:1] != (size,) for tap in record.taps):
                    raise Unsupported(
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
    """For each tap the gradient at its output, or None where the losses do not see it; each loss
    with its weight, if any.
    """
    edges = [tap.edge for record in records for tap in record.taps]
    if not edges or not losses.requires_grad:
        return [[None for _ in record.taps] for record in records]
    found = iter(
        torch.autograd.grad(
            losses,
            edges,
            torch.ones_like(losses) if weights is None else weights,
            allow_unused=True,
        )
    )
    return [[next(found) for _ in record.taps] for record in records]


def _gradients(
    record: Record, outputs: list[Tensor | None], rows: UnitRows | None
) -> LayerGradients:
    layer = record.layer
    seen = [
        (tap.name, tap.x, g) for tap, g in zip(record.taps, outputs, strict=True) if g is not None
    ]
    if not seen:
        return {}
    if not isinstance(layer.rule, UnrolledLayer):
        x, g = seen[0][1:] if len(seen) == 1 else joined(layer.rule, [(x, g) for _, x, g in seen])
        return of_units(layer.rule, layer.module, x, g, rows)
    terms: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, x, g in seen:
        terms.setdefault(name, []).append((x, g))
    seen_at = {name: joined(linear, calls) for name, calls in terms.items()}
    if rows is not None:
        seen_at = {name: places(x, g, rows) for name, (x, g) in seen_at.items()}
    return layer.rule.gradients(set(layer.entries), seen_at)
