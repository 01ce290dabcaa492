"""Selects the pass that computes a model's gradients: the quickest one that takes the model."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import ClassVar, Protocol

from torch import Tensor

from dpfl.gradients.passes.chain import ChainPass
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.gradients.passes.row_pass import RowPass
from dpfl.gradients.unit_gradients import UnitGradients, UnsupportedLayer
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models import FlatModel

_log = logging.getLogger("dpfl")


class GradientPass(Protocol):
    """One way to compute the gradient of every unit of a chunk.

    Attributes:
        writes_rows: Whether it writes every row's whole gradient out, so that a chunk must be
            small enough for them.
    """

    writes_rows: ClassVar[bool]

    def __call__(
        self, x: Tensor, y: Tensor, rows: UnitRows | None = None
    ) -> tuple[Tensor, list[UnitGradients]]:
        """Computes the losses of the rows, and the gradients of the units.

        Args:
            x: The samples.
            y: Their labels.
            rows: The rows of each unit; without it, every row is a unit.

        Returns:
            The losses (rows,) and one `UnitGradients` for each parameter, in layout order. They
            are valid until the next call.

        Raises:
            UnsupportedLayer: The model does something in this batch that this pass cannot follow.
        """
        ...


class PassSelection:
    """The pass in use, and the slower ones that remain.

    Args:
        model: The model whose gradients are computed.
    """

    def __init__(self, model: FlatModel) -> None:
        self._model = model
        self._kinds: Iterator[type[GradientPass]] = iter((ChainPass, LayerPass, RowPass))
        self.current = self._next()

    def fall_back(self, reason: UnsupportedLayer) -> None:
        """Goes on to the next pass that takes the model.

        Args:
            reason: Why the current pass cannot compute a batch.
        """
        self.current = self._next(reason)

    def _next(self, reason: UnsupportedLayer | None = None) -> GradientPass:
        for kind in self._kinds:
            if kind is RowPass:
                _log.info(
                    "Per-sample gradients by torch.func, which is slower, because the model has "
                    "%s.",
                    reason,
                )
            try:
                return kind(self._model)  # type: ignore[call-arg]
            except UnsupportedLayer as unsupported:
                reason = unsupported
        raise AssertionError("torch.func takes every model")
