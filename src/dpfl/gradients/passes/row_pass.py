"""The pass for any other model: each sample's gradient, written out."""

from __future__ import annotations

import logging
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from dpfl.gradients.losses import gradients_of, sample_losses
from dpfl.gradients.unit_gradients import UnitGradients, from_rows
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models import FlatModel

_log = logging.getLogger("dpfl")


class RowPass:
    """Computes gradients by `torch.func`, or one sample at a time where that does not work.

    Args:
        model: The model.
    """

    writes_rows: ClassVar[bool] = True

    def __init__(self, model: FlatModel) -> None:
        self.model = model
        self._gradients = self._by_vmap

    def __call__(
        self, x: Tensor, y: Tensor, rows: UnitRows | None = None
    ) -> tuple[Tensor, list[UnitGradients]]:
        try:
            losses, gradients = self._gradients(x, y)
        except (RuntimeError, ValueError, TypeError) as error:
            if self._gradients == self._one_by_one:
                raise
            _log.info(
                "torch.func cannot vectorise this model (%s): per-sample gradients one by one.",
                error,
            )
            self._gradients = self._one_by_one
            losses, gradients = self._gradients(x, y)
        if rows is not None:
            gradients = rows.sum(rows.weigh(gradients))
        spans = [self.model.layout.span(entry) for entry in range(len(self.model.parameters))]
        return losses, [from_rows(gradients[:, span]) for span in spans]

    def _by_vmap(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        names = self.model.layout.names[: len(self.model.parameters)]
        parameters = dict(zip(names, (p.detach() for p in self.model.parameters), strict=True))

        def loss(values: dict[str, Tensor], sample: Tensor, label: Tensor) -> Tensor:
            logits = functional_call(self.model.module, values, (sample.unsqueeze(0),))
            return sample_losses(logits, label.unsqueeze(0), self.model.task).sum()

        per_sample = vmap(grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
        gradients, losses = per_sample(parameters, x, y)
        return losses, torch.cat([gradients[name].flatten(1) for name in names], dim=1)

    def _one_by_one(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        losses, rows = [], x.new_empty(len(x), self.model.layout.trainable, dtype=torch.float32)
        for row, sample, label in zip(rows, x, y, strict=True):
            with torch.enable_grad():
                loss = sample_losses(
                    self.model.module(sample.unsqueeze(0)), label.unsqueeze(0), self.model.task
                ).sum()
            torch.cat([g.flatten() for g in gradients_of(loss, self.model)], out=row)
            losses.append(loss.detach())
        return torch.stack(losses), rows
