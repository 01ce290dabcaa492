"""Sums of clipped per-sample gradients in one backward pass, and the plain mean gradient."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from dpfl.errors import DpflError
from dpfl.gradients.chain import ChainPass
from dpfl.gradients.layer_pass import LayerPass
from dpfl.gradients.losses import Loss, gradients_of, mean_loss
from dpfl.gradients.mixing import refuse_mixing
from dpfl.gradients.products import SampleGradient, Unsupported, squares_of
from dpfl.gradients.row_pass import RowPass
from dpfl.gradients.spread import Array, Spread, alike, chunk_of
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
    """The sum over units of factor * gradient in layout order; norms (B, groups) before clipping; losses (B,).

    A unit is a sample, or a person, whose gradient and loss are the means over their rows. One whose loss or gradient is not
    finite counts as 0 in all three, as the clip would have it.
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

    def __call__(self, x: Tensor, y: Tensor, factors: Factors, whose: Tensor | None = None) -> ClippedSum:
        """The clipped sum over a batch; factors maps norms (B, groups) to multipliers (B, groups).

        `whose` says which unit each row is of: 0, 1, 2, ..., ascending; without it, every row is one.
        """
        part = partial(self._part, factors=factors)
        if whose is not None and len(sizes := _checked_sizes(whose, len(x))) < len(x):
            alone = partial(self._alone, factors=factors)
            return self._in_place(list(self._unit_parts(x, y, sizes, self._chunk, part, alone)))
        parts = [part for _, part in self._parts(x, y, self._chunk, part)]
        return parts[0] if len(parts) == 1 else self._joined(parts)

    def rows(self, x: Tensor, y: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Slices of the batch with the gradients of their samples (b, trainable), as many at a time as memory should hold."""
        return self._parts(x, y, self._row_chunk, self._written_out)

    def unit_rows(self, x: Tensor, y: Tensor, whose: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Units of the batch with their gradients, the means over their rows."""
        sizes = _checked_sizes(whose, len(x))
        return self._unit_parts(x, y, sizes, self._row_chunk, self._written_out, lambda x, y: self._mean(x, y)[1][None])

    def _parts(self, x: Tensor, y: Tensor, chunk: int, part: Callable[[Tensor, Tensor], T]) -> Iterator[tuple[slice, T]]:
        """A result for each chunk of the batch, by the fallback from the first one on that needs it."""
        self._check(x, y)
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

    def _unit_parts(
        self, x: Tensor, y: Tensor, sizes: Array, chunk: int, part: Callable[..., T],
        alone: Callable[[Tensor, Tensor], T],
    ) -> Iterator[tuple[Tensor, T]]:  # fmt: skip
        """A result for each chunk of whole units; a unit with more rows than are written out at a time comes alone."""
        self._check(x, y)
        rows: slice | Tensor
        starts = sizes.cumsum() - sizes
        as_they_come = alike(sizes, self._row_chunk)
        left = np.arange(len(sizes)) if as_they_come else np.argsort(sizes, kind="stable")
        while len(left):
            most = self._row_chunk if isinstance(self._pass, RowPass) else chunk
            units = left[: chunk_of(sizes[left], most, self._row_chunk)]
            spread = Spread(sizes[units], self._row_chunk)
            if as_they_come:
                rows = slice(int(starts[units[0]]), int(starts[units[0]]) + len(spread.group))
            else:
                rows = torch.from_numpy(starts[units][spread.group] + spread.places_within)
            try:
                found = part(x[rows], y[rows], spread=spread) if spread.most <= self._row_chunk else alone(x[rows], y[rows])
            except Unsupported as reason:
                self._pass = self._next_way(reason)
                continue
            yield torch.from_numpy(units), found
            left = left[len(units) :]

    def _check(self, x: Tensor, y: Tensor) -> None:
        """A model that is not finite is refused whatever the batch is, an empty one included: who sent it must not see more."""
        if not (torch.isfinite(self.model.vector.sum()) or torch.isfinite(self.model.vector).all()):
            raise NonFinite(_NOT_FINITE)
        if len(x) != len(y):
            raise DpflError(f"A batch needs one label per sample, but has {len(x)} samples and {len(y)} labels.")
        if not self._checked:  # by an empty batch as well: whether it was is not for who sent the model
            refuse_mixing(self.model, x)
            self._checked = True

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
    def _part(self, x: Tensor, y: Tensor, spread: Spread | None = None, *, factors: Factors) -> ClippedSum:
        drawn = torch.get_rng_state()
        losses, gradients = self._passed(x, y, spread)
        norms = self._norms(gradients)
        if torch.isfinite(norms).all() and torch.isfinite(losses).all():
            return ClippedSum(self._summed(gradients, _checked_factors(factors, norms)), norms, losses)
        return self._part_of_finite(x, y, spread, factors, _finite(norms, losses), norms, drawn)

    def _passed(self, x: Tensor, y: Tensor, spread: Spread | None) -> tuple[Tensor, list[SampleGradient]]:
        """The losses and gradients of units."""
        losses, gradients = self._pass(x, y, spread)
        return losses if spread is None else spread.sums(losses * spread.shares), gradients

    def _part_of_finite(
        self, x: Tensor, y: Tensor, spread: Spread | None, factors: Factors, finite: Tensor, norms: Tensor, drawn: Tensor
    ) -> ClippedSum:
        """The others again, with the same draws (of dropout): the shortest of them stands, unweighted, in the place of what is
        not finite, which a weight of 0 would not take out of a matrix product. One by one, with draws of their own, where it is
        not finite there."""
        if not finite.any():
            zeros = torch.zeros_like(self.model.vector[: self.model.layout.trainable])
            return ClippedSum(zeros, torch.zeros_like(norms), zeros.new_zeros(len(norms)))
        whose = torch.arange(len(x)) if spread is None else spread.whose
        shortest = int(norms.sum(1).where(finite, torch.inf).argmin())
        places = torch.where(finite[whose], torch.arange(len(x)), int(torch.searchsorted(whose, shortest)))
        torch.set_rng_state(drawn)
        losses, gradients = self._passed(x[places], y[places], spread)
        norms = self._norms(gradients)
        if not torch.isfinite(norms).all() or not torch.isfinite(losses).all():
            one = spread.one if spread else lambda unit: (slice(unit, unit + 1), None)
            own = [one(unit) for unit in range(len(norms))]
            return self._joined([self._part(x[rows], y[rows], alone, factors=factors) for rows, alone in own])
        weights = _checked_factors(factors, norms) * finite[:, None]
        return ClippedSum(self._summed(gradients, weights), norms * finite[:, None], losses * finite)

    @torch.no_grad()
    def _mean(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and gradient of one unit of many rows, some at a time; zeros where they are not finite."""
        total, loss = torch.zeros_like(self.model.vector[: self.model.layout.trainable]), torch.zeros(())
        for rows in torch.arange(len(x)).split(self._row_chunk):
            losses, gradients = self._pass(x[rows], y[rows])
            total += self._summed(gradients, torch.full((len(rows), len(self.groups)), 1 / len(x)))
            loss += losses.sum() / len(x)
        finite = torch.isfinite(total).all() & torch.isfinite(loss)
        return (loss, total) if finite else (torch.zeros_like(loss), torch.zeros_like(total))

    def _alone(self, x: Tensor, y: Tensor, factors: Factors) -> ClippedSum:
        loss, total = self._mean(x, y)
        spans = [[self.model.layout.span(entry) for entry in group] for group in self.groups]
        norms = torch.stack([torch.cat([squares_of(total[span][None]) for span in own]).sum() for own in spans]).sqrt()[None]
        if not torch.isfinite(norms).all():
            return ClippedSum(torch.zeros_like(total), torch.zeros_like(norms), torch.zeros_like(loss)[None])
        for weight, own in zip(_checked_factors(factors, norms)[0], spans, strict=True):
            for span in own:
                total[span] *= weight
        return ClippedSum(total, norms, loss[None])

    def _summed(self, gradients: list[SampleGradient], weights: Tensor) -> Tensor:
        total = torch.empty_like(self.model.vector[: self.model.layout.trainable])
        for weight, group in zip(weights.T.contiguous(), self.groups, strict=True):
            for entry in group:
                total[self.model.layout.span(entry)] = gradients[entry].weighted(weight)
        return total

    @torch.no_grad()
    def _written_out(self, x: Tensor, y: Tensor, spread: Spread | None = None) -> Tensor:
        losses, gradients = self._passed(x, y, spread)
        rows = torch.cat([gradient.rows(slice(None)) for gradient in gradients], dim=1)
        if not torch.isfinite(rows.sum() + losses.sum()):
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

    def _in_place(self, parts: list[tuple[Tensor, ClippedSum]]) -> ClippedSum:
        """Parts of units in any order."""
        if len(parts) == 1:
            return parts[0][1]
        found = self._joined([part for _, part in parts])
        units = np.concatenate([np.zeros(0, np.int64), *(units.numpy() for units, _ in parts)])
        if (units[1:] > units[:-1]).all():
            return found
        order = torch.from_numpy(units.argsort())
        return ClippedSum(found.total, found.norms[order], found.losses[order])


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


def _checked_sizes(whose: Tensor, rows: int) -> Array:
    """How many rows each unit has."""
    group = whose.numpy()
    if len(group) != rows or (group[1:] < group[:-1]).any() or not (sizes := np.bincount(group)).all():
        raise DpflError("The units of a batch are numbered 0, 1, 2, ..., one number a row, in ascending order.")
    return sizes


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
