"""Sums of clipped per-sample gradients in one backward pass, and the plain mean gradient."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from dpfl.errors import DpflError
from dpfl.gradients.chain import ChainPass
from dpfl.gradients.layer_pass import LayerPass
from dpfl.gradients.losses import Loss, gradients_of, mean_loss
from dpfl.gradients.mixing import refuse_mixing
from dpfl.gradients.products import SampleGradient, Unsupported
from dpfl.gradients.row_pass import RowPass
from dpfl.models import FlatModel, refuse_batch_statistics

_log = logging.getLogger("dpfl")

# How many numbers of written-out gradients may be held at a time.
_ROWS_BLOCK = 1 << 26

_NOT_FINITE = "The model's weights are not finite; lower the learning rate."

T = TypeVar("T")
Way = ChainPass | LayerPass | RowPass
Factors = Callable[[Tensor], Tensor]


class NonFinite(DpflError):
    """A weight of the model or a clipping factor is not a finite number, so the sum would have no bound."""


@dataclass(frozen=True)
class ClippedSum:
    """The sum over samples of factor * gradient in layout order; norms (B, groups) before clipping; losses (B,).

    A sample whose loss or gradient is not finite counts as 0 in all three, as the clip would have it.
    """

    total: Tensor
    norms: Tensor
    losses: Tensor


class ClippedGradients:
    """Clipped sums for one model. The module carries hooks only while a sum is computed.

    Each group of layout entries is clipped by its own norm; without groups, the whole gradient is one group.
    """

    def __init__(self, model: FlatModel, groups: Sequence[Sequence[int]] | None = None, chunk: int = 512) -> None:
        refuse_batch_statistics(model.module)
        if chunk < 1:
            raise DpflError(f"chunk must be at least 1, but is {chunk}.")
        self.model = model
        self.groups = _checked_groups(groups, len(model.parameters))
        self._chunk = chunk
        self._row_chunk = max(1, min(chunk, _ROWS_BLOCK // model.layout.trainable))
        self._checked = False
        self._ways: Iterator[type[Way]] = iter((ChainPass, LayerPass, RowPass))
        self._pass = self._next_way()

    def __call__(self, x: Tensor, y: Tensor, factors: Factors) -> ClippedSum:
        """The clipped sum over a batch; factors maps norms (B, groups) to multipliers (B, groups)."""
        part = partial(self._part, factors=factors)
        parts = [part for _, part in self._parts(x, y, self._chunk, part)]
        return parts[0] if len(parts) == 1 else self._joined(parts)

    def rows(self, x: Tensor, y: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Slices of the batch with the gradients of their samples (b, trainable), as many at a time as memory should hold."""
        return self._parts(x, y, self._row_chunk, self._written_out)

    def _parts(self, x: Tensor, y: Tensor, chunk: int, part: Callable[[Tensor, Tensor], T]) -> Iterator[tuple[slice, T]]:
        """A result for each chunk of the batch, by the fallback from the first one on that needs it.

        A model that is not finite is refused whatever the batch is, an empty one included: who sent it must not see more.
        """
        if not (torch.isfinite(self.model.vector.sum()) or torch.isfinite(self.model.vector).all()):
            raise NonFinite(_NOT_FINITE)
        if len(x) != len(y):
            raise DpflError(f"A batch needs one label per sample, but has {len(x)} samples and {len(y)} labels.")
        if len(x) and not self._checked:
            refuse_mixing(self.model, x)
            self._checked = True
        done = 0
        while done < len(x):
            size = self._row_chunk if isinstance(self._pass, RowPass) else chunk
            rows = slice(done, min(done + size, len(x)))
            try:
                found = part(x[rows], y[rows])
            except Unsupported as reason:
                self._pass = self._next_way(reason)
                continue
            yield rows, found
            done = rows.stop

    def _next_way(self, reason: Unsupported | None = None) -> Way:
        """The quickest way that is left: each takes fewer models, or is quicker, than the next."""
        for way in self._ways:
            if way is RowPass:
                _log.info("Per-sample gradients by torch.func, which is slower, because the model has %s.", reason)
            try:
                return way(self.model)
            except Unsupported as found:
                reason = found
        raise AssertionError("torch.func takes every model")

    @torch.no_grad()
    def _part(self, x: Tensor, y: Tensor, factors: Factors) -> ClippedSum:
        drawn = torch.get_rng_state()
        losses, gradients = self._pass(x, y)
        norms = self._norms(gradients)
        if torch.isfinite(norms).all() and torch.isfinite(losses).all():
            return ClippedSum(self._summed(gradients, _checked_factors(factors, norms)), norms, losses)
        return self._part_of_finite(x, y, factors, _finite(norms, losses), norms, drawn)

    def _part_of_finite(
        self, x: Tensor, y: Tensor, factors: Factors, finite: Tensor, norms: Tensor, drawn: Tensor
    ) -> ClippedSum:
        """The others again, with the same draws (of dropout): the shortest of them stands, unweighted, in the place of what is
        not finite, which a weight of 0 would not take out of a matrix product. One by one, with draws of their own, where it is
        not finite there."""
        if not finite.any():
            zeros = torch.zeros_like(self.model.vector[: self.model.layout.trainable])
            return ClippedSum(zeros, torch.zeros_like(norms), zeros.new_zeros(len(x)))
        shortest = norms.sum(1).where(finite, torch.inf).argmin()
        places = torch.where(finite, torch.arange(len(x), device=x.device), shortest)
        torch.set_rng_state(drawn)
        losses, gradients = self._pass(x[places], y[places])
        norms = self._norms(gradients)
        if not torch.isfinite(norms).all() or not torch.isfinite(losses).all():
            return self._joined([self._part(x[at : at + 1], y[at : at + 1], factors) for at in range(len(x))])
        weights = _checked_factors(factors, norms) * finite[:, None]
        return ClippedSum(self._summed(gradients, weights), norms * finite[:, None], losses * finite)

    def _summed(self, gradients: list[SampleGradient], weights: Tensor) -> Tensor:
        total = torch.empty_like(self.model.vector[: self.model.layout.trainable])
        for weight, group in zip(weights.T.contiguous(), self.groups, strict=True):
            for entry in group:
                total[self.model.layout.span(entry)] = gradients[entry].weighted(weight)
        return total

    @torch.no_grad()
    def _written_out(self, x: Tensor, y: Tensor) -> Tensor:
        losses, gradients = self._pass(x, y)
        rows = torch.cat([gradient.rows() for gradient in gradients], dim=1)
        if not torch.isfinite(rows).all() or not torch.isfinite(losses).all():
            rows[~_finite(rows, losses)] = 0
        return rows

    def _norms(self, gradients: list[SampleGradient]) -> Tensor:
        columns = [torch.stack([gradients[entry].squares for entry in group]).sum(0) for group in self.groups]
        return torch.stack(columns, dim=1).sqrt()

    def _joined(self, parts: list[ClippedSum]) -> ClippedSum:
        zeros = torch.zeros_like(self.model.vector[: self.model.layout.trainable])
        return ClippedSum(
            total=sum((part.total for part in parts), zeros),
            norms=torch.cat([zeros.new_zeros(0, len(self.groups)), *(part.norms for part in parts)]),
            losses=torch.cat([zeros.new_zeros(0), *(part.losses for part in parts)]),
        )


def plain_gradient(model: FlatModel, x: Tensor, y: Tensor, loss_of: Loss = mean_loss) -> tuple[Tensor, float]:
    """The gradient of the mean loss in layout order, and that loss; zeros for an empty batch."""
    if not len(x):
        return torch.zeros_like(model.vector[: model.layout.trainable]), 0.0
    with torch.enable_grad():
        loss = loss_of(model, x, y)
    return torch.cat([gradient.flatten() for gradient in gradients_of(loss, model)]), loss.item()


def _finite(numbers: Tensor, losses: Tensor) -> Tensor:
    """Which samples have finite numbers (B, n) and a finite loss."""
    return torch.isfinite(numbers).all(1) & torch.isfinite(losses)


def _checked_groups(groups: Sequence[Sequence[int]] | None, entries: int) -> tuple[tuple[int, ...], ...]:
    found = (tuple(range(entries)),) if groups is None else tuple(tuple(group) for group in groups)
    if sorted(entry for group in found for entry in group) != list(range(entries)) or not all(found):
        raise DpflError(f"Clipping groups must hold each of the parameters 0 to {entries - 1} exactly once.")
    return found


def _checked_factors(factors: Factors, norms: Tensor) -> Tensor:
    weights = factors(norms)
    if weights.shape != norms.shape:
        raise DpflError(f"Clipping factors must have the shape {tuple(norms.shape)}, but have {tuple(weights.shape)}.")
    if not torch.isfinite(weights).all():
        raise NonFinite("A clipping factor is not finite; divide by max(norm, bound), never by a norm of zero.")
    return weights.to(norms.dtype)
