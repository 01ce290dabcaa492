"""Sums of clipped per-unit gradients in one backward pass, and the plain mean gradient.

The sum that noise is added to must move by at most the clip norm when one unit is added or removed.
For that, three things hold in floats (docs/privacy.md, "Float arithmetic"): a unit's gradient has
the same bits whoever else is in the batch (`chunks.py`), its norm is an upper bound
(`rounding.py`), and the sum over units is in float64.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpfl.errors import DpflError
from dpfl.gradients.chain import ChainPass
from dpfl.gradients.chunks import SelfTest
from dpfl.gradients.layer_pass import LayerPass
from dpfl.gradients.losses import Loss, gradients_of, mean_loss
from dpfl.gradients.mixing import refuse_mixing
from dpfl.gradients.products import Chosen, SampleGradient, Unsupported
from dpfl.gradients.row_pass import RowPass
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models import FlatModel, refuse_batch_statistics
from dpfl.models.row_sizes import ChunkSizes, InvariantSizes, UnpaddedSizes, pad, padded_chunks
from dpfl.privacy.mechanisms.clip import MARGIN
from dpfl.privacy.mechanisms.rounding import COVER, DOUBLE, TERMS, gamma

_log = logging.getLogger("dpfl")

# How many numbers of written-out gradients may be held at a time.
_ROWS_BLOCK = 1 << 26

_NOT_FINITE = "The model's weights are not finite; lower the learning rate."

WEIGHING = 2
"""Roundings of one term in float64: its clip factor times one number, and that times the other."""

Array = np.ndarray[Any, Any]
Way = ChainPass | LayerPass | RowPass
Factors = Callable[[Tensor], Tensor]

ARITHMETIC = ("exact", "fast")


class NonFinite(DpflError):
    """A weight of the model or a clipping factor is not a finite number, so the sum would have no
    bound.
    """


@dataclass(frozen=True)
class ClippedSum:
    """The sum over units of factor * gradient.

    A unit is a sample, or a person, whose gradient and loss are the means over their rows. One
    whose loss or gradient is not finite counts as 0 in all three, as the clip would have it.

    Attributes:
        total: The sum in layout order, in float64.
        norms: Upper bounds (B, groups) on the norms before clipping, in float64.
        losses: The losses (B,).
    """

    total: Tensor
    norms: Tensor
    losses: Tensor


@dataclass(frozen=True)
class _Chunk:
    """Rows that are computed together: `units` says which of the batch's are first in it, the rest
    fills it up.
    """

    x: Tensor
    y: Tensor
    units: Array
    rows: UnitRows | None = None
    large: bool = False


class _Total:
    """A float64 sum in layout order, entry by entry; what is added first is written where it
    belongs.
    """

    def __init__(self, model: FlatModel) -> None:
        self._layout = model.layout
        self._vector = torch.empty(model.layout.trainable, dtype=torch.float64)
        self._begun: set[int] = set()

    def add(self, entry: int, gradient: SampleGradient, units: Chosen, weights: Tensor) -> None:
        """Adds the gradients of these units of a chunk."""
        own = self._vector[self._layout.span(entry)]
        if entry in self._begun:
            own += gradient.weighted(units, weights)
        else:
            gradient.weighted(units, weights, own)
        self._begun.add(entry)

    def add_part(self, entry: int, part: Tensor) -> None:
        """Adds what one unit contributes."""
        own = self._vector[self._layout.span(entry)]
        if entry in self._begun:
            own += part
        else:
            own.copy_(part)
        self._begun.add(entry)

    @property
    def vector(self) -> Tensor:
        return self._vector if self._begun else self._vector.zero_()


class ClippedGradients:
    """Clipped sums for one model. The module carries hooks only while a sum is computed.

    Args:
        model: The model whose gradients are clipped. groups: Layout entries that are clipped
        together, each group by its own norm; by default all are one group. chunk: The largest
        number of rows that are computed at a time. arithmetic: "exact" gives every unit the same
        bits in any batch; "fast" leaves the padding out, for simulations.
    """

    def __init__(
        self,
        model: FlatModel,
        groups: Sequence[Sequence[int]] | None = None,
        chunk: int = 128,
        arithmetic: str = "exact",
    ) -> None:
        refuse_batch_statistics(model.module)
        if chunk < 1:
            raise DpflError(f"chunk must be at least 1, but is {chunk}.")
        if arithmetic not in ARITHMETIC:
            raise DpflError(f"arithmetic is 'exact' or 'fast', not {arithmetic!r}.")
        self.model = model
        self.groups = _checked_groups(groups, len(model.parameters))
        self._exact = arithmetic == "exact"
        self._chunk = chunk
        self._row_chunk = max(1, min(chunk, _ROWS_BLOCK // model.layout.trainable))
        self._checked = False
        self._sizes: dict[tuple[Any, ...], ChunkSizes] = {}
        self._ways: Iterator[type[Way]] = iter((ChainPass, LayerPass, RowPass))
        self._pass = self._next_way()

    @property
    def path(self) -> str:
        """How units were computed, in words for the statement."""
        paths = [sizes.path for sizes in self._sizes.values()]
        return next((path for path in paths if "one unit" in path), paths[0] if paths else "")

    def __call__(
        self, x: Tensor, y: Tensor, factors: Factors, whose: Tensor | None = None
    ) -> ClippedSum:
        """The clipped sum over a batch.

        Args:
            x: The samples.
            y: Their labels.
            factors: Maps norms (B, groups) to multipliers (B, groups).
            whose: Which unit each row is of: 0, 1, 2, ..., ascending; without it, every row is one.

        Returns:
            The sum, and norms and losses of the units.

        Raises:
            NonFinite: The model has a weight, or the clip a factor, that is not finite.
        """
        self._check(x, y)
        sizes = None if whose is None else _checked_sizes(whose, len(x))
        while True:
            try:
                return self._sum(x, y, factors, sizes)
            # all of the batch again: a unit's bits must not depend on who came before it
            except Unsupported as reason:
                self._pass = self._next_way(reason)

    @torch.no_grad()
    def largest_batch(self, x: Tensor, y: Tensor, persons: bool) -> float:
        """How many units a batch may have: by the form of samples and labels alone, so that a
        refusal tells of no data.
        """
        if persons:
            return most_units(1 / COVER)
        while True:
            try:
                rows, labels = (
                    values.new_zeros(self._chunk, *values.shape[1:]) for values in (x, y)
                )
                gradients = self._pass(rows, labels)[1]
                additions = max(gradient.additions for gradient in gradients)
                return most_units(
                    max(gradient.amplifies for gradient in gradients), additions + WEIGHING
                )
            except Unsupported as reason:
                self._pass = self._next_way(reason)

    def rows(self, x: Tensor, y: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Slices of the batch with the gradients of their samples (b, trainable), as many at a time
        as memory should hold.
        """
        for units, rows in self._written(x, y, None):
            yield slice(int(units[0]), int(units[-1]) + 1), rows

    def unit_rows(self, x: Tensor, y: Tensor, whose: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Units of the batch with their gradients, the means over their rows."""
        for units, rows in self._written(x, y, _checked_sizes(whose, len(x))):
            yield torch.from_numpy(units), rows

    @torch.no_grad()
    def _sum(self, x: Tensor, y: Tensor, factors: Factors, sizes: Array | None) -> ClippedSum:
        units = len(x) if sizes is None else len(sizes)
        total = _Total(self.model)
        norms, losses = (
            torch.zeros(units, len(self.groups), dtype=torch.float64),
            torch.zeros(units),
        )
        self._amplifies, self._additions = 1.0, 0
        for chunk in self._chunks(x, y, sizes, self._chunk):
            places = torch.from_numpy(chunk.units)
            add = self._add_large if chunk.large else self._add
            norms[places], losses[places] = add(chunk, factors, total)
        check_units(units, self._additions, self._amplifies)
        return ClippedSum(total.vector, norms, losses)

    def _add(self, chunk: _Chunk, factors: Factors, total: _Total) -> tuple[Tensor, Tensor]:
        """Adds the clipped gradients of a chunk's units to the total."""
        losses, gradients = self._passed(chunk)
        norms, count = self._norms(gradients), len(chunk.units)
        self._amplifies = max(self._amplifies, *(gradient.amplifies for gradient in gradients))
        self._additions = max(self._additions, *(gradient.additions for gradient in gradients))
        norms, losses = norms[:count], losses[:count]
        finite = torch.isfinite(norms).all(1) & torch.isfinite(losses)
        chosen = slice(0, count) if (whole := bool(finite.all())) else finite.nonzero().flatten()
        norms, losses = (
            (norms, losses)
            if whole
            else (norms.where(finite[:, None], 0.0), losses.where(finite, 0.0))
        )
        weights = _checked_factors(factors, norms)[chosen]
        for weight, group in zip(weights.T.contiguous(), self.groups, strict=True):
            for entry in group:
                total.add(entry, gradients[entry], chosen, weight)
        return norms, losses

    def _add_large(self, chunk: _Chunk, factors: Factors, total: _Total) -> tuple[Tensor, Tensor]:
        """The same of one unit with more rows than a chunk: its mean is made of its own rows
        alone.
        """
        loss, mean = self._mean(chunk.x, chunk.y)
        spans = [[self.model.layout.span(entry) for entry in group] for group in self.groups]
        squares = [torch.stack([mean[span].square().sum() for span in own]).sum() for own in spans]
        norms = torch.stack(squares).sqrt()[None] * (1 + gamma(self.model.layout.trainable, DOUBLE))
        for weight, group in zip(_checked_factors(factors, norms)[0], self.groups, strict=True):
            for entry in group:
                total.add_part(entry, weight * mean[self.model.layout.span(entry)])
        return norms, loss[None]

    def _mean(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and gradient, in float64, of one unit of many rows; zeros where they are not
        finite.
        """
        total, loss = _Total(self.model), torch.zeros((), dtype=torch.float64)
        for chunk in self._chunks(x, y, None, self._chunk):
            losses, gradients = self._passed(chunk)
            count = len(chunk.units)
            share = torch.full((count,), 1 / len(x), dtype=torch.float64)
            loss += losses[:count].double().sum() / len(x)
            for entry, gradient in enumerate(gradients):
                total.add(entry, gradient, slice(0, count), share)
        mean = total.vector
        finite = torch.isfinite(mean).all() & torch.isfinite(loss)
        return (loss.float(), mean) if finite else (torch.zeros(()), torch.zeros_like(mean))

    @torch.no_grad()
    def _written(self, x: Tensor, y: Tensor, sizes: Array | None) -> Iterator[tuple[Array, Tensor]]:
        """Units and their gradients, by the next way from the first chunk on that needs it."""
        self._check(x, y)
        done = 0
        while True:
            try:
                for chunk in list(self._chunks(x, y, sizes, self._row_chunk))[done:]:
                    yield (
                        chunk.units,
                        self._mean(chunk.x, chunk.y)[1].float()[None]
                        if chunk.large
                        else self._rows_of(chunk),
                    )
                    done += 1
                return
            except Unsupported as reason:
                if done:
                    raise DpflError(
                        f"The model computes gradients in another way for some samples ({reason})."
                    ) from None
                self._pass = self._next_way(reason)

    def _rows_of(self, chunk: _Chunk) -> Tensor:
        losses, gradients = self._passed(chunk)
        count = len(chunk.units)
        rows = torch.cat([gradient.rows(slice(0, len(losses))) for gradient in gradients], dim=1)[
            :count
        ]
        if not torch.isfinite(rows.sum() + losses[:count].sum()):
            rows[~(torch.isfinite(rows).all(1) & torch.isfinite(losses[:count]))] = 0
        return rows

    def _passed(self, chunk: _Chunk) -> tuple[Tensor, list[SampleGradient]]:
        """The losses and gradients of units, those that fill the chunk up included."""
        losses, gradients = self._pass(chunk.x, chunk.y, chunk.rows)
        return losses if chunk.rows is None else chunk.rows.sum(chunk.rows.weigh(losses)), gradients

    def _chunks(self, x: Tensor, y: Tensor, sizes: Array | None, most: int) -> Iterator[_Chunk]:
        if sizes is not None and (len(sizes) < len(x)):
            yield from self._unit_chunks(x, y, sizes, most)
            return
        done = 0
        for (samples, labels), count in padded_chunks(self._sizes_for(x, y, most), x, y):
            yield _Chunk(samples, labels, np.arange(done, done + count))
            done += count

    def _unit_chunks(self, x: Tensor, y: Tensor, sizes: Array, most: int) -> Iterator[_Chunk]:
        """Chunks of units of equally many rows, each unit filled up to the next power of two."""
        starts, classes = sizes.cumsum() - sizes, 2 ** np.ceil(np.log2(sizes)).astype(np.int64)
        chunk_sizes = self._sizes_for(x, y, most)
        for per_unit in np.unique(classes).tolist():
            left = np.flatnonzero(classes == per_unit)
            while len(left):
                if per_unit > most:
                    own = slice(int(starts[left[0]]), int(starts[left[0]] + sizes[left[0]]))
                    yield _Chunk(x[own], y[own], left[:1], large=True)
                    left = left[1:]
                    continue
                rows = chunk_sizes.rows_for(len(left), per_unit)
                units, left = left[: rows // per_unit], left[rows // per_unit :]
                yield self._unit_chunk(x, y, units, sizes[units], starts[units], (rows, per_unit))

    def _unit_chunk(
        self,
        x: Tensor,
        y: Tensor,
        units: Array,
        sizes: Array,
        starts: Array,
        shape: tuple[int, int],
    ) -> _Chunk:
        """The rows of these units; where a unit has fewer, its last row again, which counts 0."""
        rows, per_unit = shape
        place = np.arange(per_unit)
        chosen = torch.from_numpy((starts[:, None] + np.minimum(place, sizes[:, None] - 1)).ravel())
        shares = (
            np.where(place < sizes[:, None], 1 / sizes[:, None], 0.0).astype(np.float32).ravel()
        )
        return _Chunk(
            pad(x[chosen], rows),
            pad(y[chosen], rows),
            units,
            UnitRows(per_unit, pad(torch.from_numpy(shares), rows)),
        )

    def _sizes_for(self, x: Tensor, y: Tensor, most: int) -> ChunkSizes:
        most = min(most, self._row_chunk) if isinstance(self._pass, RowPass) else most
        name = type(self._pass).__name__
        key = name, most, x.dtype, tuple(x.shape[1:]), y.dtype, tuple(y.shape[1:])
        if key not in self._sizes:
            test = SelfTest(self.model, self._outputs, f"gradients {name}", x[:1], y[:1])
            self._sizes[key] = (
                InvariantSizes(most, test.reference) if self._exact else UnpaddedSizes(most)
            )
        return self._sizes[key]

    def _outputs(self, x: Tensor, y: Tensor, rows: UnitRows | None) -> list[Tensor]:
        """What must not depend on the batch: losses, norms, and gradients written out."""
        losses, gradients = self._passed(_Chunk(x, y, np.arange(0), rows))
        parts = (
            gradient.parts or (gradient.rows(slice(0, len(losses))),) for gradient in gradients
        )
        return [
            losses,
            *(gradient.squares for gradient in gradients),
            *(part for own in parts for part in own),
        ]

    def _check(self, x: Tensor, y: Tensor) -> None:
        """A model that is not finite is refused whatever the batch is, an empty one included: who
        sent it must not see more.
        """
        if not (torch.isfinite(self.model.vector.sum()) or torch.isfinite(self.model.vector).all()):
            raise NonFinite(_NOT_FINITE)
        if len(x) != len(y):
            raise DpflError(
                f"A batch needs one label per sample, but has {len(x)} samples and {len(y)} labels."
            )
        if (
            not self._checked
        ):  # by an empty batch as well: whether it was is not for who sent the model
            refuse_mixing(self.model, x)
            self._checked = True

    def _next_way(self, reason: Unsupported | None = None) -> Way:
        """The quickest way that is left: each takes fewer models, or is quicker, than the next."""
        for way in self._ways:
            if way is RowPass:
                _log.info(
                    "Per-sample gradients by torch.func, which is slower, because the model has "
                    "%s.",
                    reason,
                )
            try:
                return way(self.model)
            except Unsupported as unsupported:
                reason = unsupported
        raise AssertionError("torch.func takes every model")

    def _norms(self, gradients: list[SampleGradient]) -> Tensor:
        """By additions of whole tensors, which are the same for every unit; a reduction may take
        the last ones otherwise.
        """
        columns = [
            reduce(torch.add, (gradients[entry].squares for entry in group))
            for group in self.groups
        ]
        return torch.stack(columns, dim=1).sqrt()


def check_units(units: int, additions: int, amplifies: float = 1.0) -> None:
    """Refuses a sum of more units than the margin of the clip covers.

    Args:
        units: The number of units in the sum.
        additions: How many results of a term's chunk, at most, are added to its own.
        amplifies: A bound on the summed length of a clipped unit's terms over the clip norm.

    Raises:
        DpflError: The sum could be wrong by more than half of the margin.
    """
    if units > most_units(amplifies, additions + WEIGHING):
        raise DpflError(
            f"A batch of {units} units is too large to sum within the margin of the clip; lower "
            "the rate q."
        )


def most_units(amplifies: float, additions: int = 0) -> float:
    """How many units a sum may have so that its float64 rounding, in two neighbouring sums, stays
    within half of the margin.

    A chunk's sum is wrong by gamma_n of the summed length of its terms, with n = TERMS + max(TERMS,
    additions). The sums of chunks are added one by one, and there are as many as units where each
    is computed alone: gamma_B of the length of all B units. So B is the root of 2 B (gamma_n a +
    gamma_B) = MARGIN / 2.

    Args:
        amplifies: A bound a on the summed length of a clipped unit's terms over the clip norm.
        additions: How often a result of `TERMS` terms is rounded after, within its chunk.
    """
    product, addition = (
        gamma(TERMS + max(TERMS, additions), DOUBLE) * amplifies,
        DOUBLE * (1 + 2.0**-20),
    )
    return (math.sqrt(product**2 + addition * MARGIN) - product) / (2 * addition)


def plain_gradient(
    model: FlatModel, x: Tensor, y: Tensor, loss_of: Loss = mean_loss
) -> tuple[Tensor, float]:
    """The gradient of the mean loss in layout order, and that loss; zeros for an empty batch."""
    if not len(x):
        return torch.zeros_like(model.vector[: model.layout.trainable]), 0.0
    with torch.enable_grad():
        loss = loss_of(model, x, y)
    return torch.cat([gradient.flatten() for gradient in gradients_of(loss, model)]), loss.item()


def _checked_sizes(whose: Tensor, rows: int) -> Array:
    """How many rows each unit has."""
    group = whose.numpy()
    if (
        len(group) != rows
        or (group[1:] < group[:-1]).any()
        or not (sizes := np.bincount(group)).all()
    ):
        raise DpflError(
            "The units of a batch are numbered 0, 1, 2, ..., one number a row, in ascending order."
        )
    return sizes


def _checked_groups(
    groups: Sequence[Sequence[int]] | None, entries: int
) -> tuple[tuple[int, ...], ...]:
    checked = (
        (tuple(range(entries)),) if groups is None else tuple(tuple(group) for group in groups)
    )
    if sorted(entry for group in checked for entry in group) != list(range(entries)) or not all(
        checked
    ):
        raise DpflError(
            f"Clipping groups must hold each of the parameters 0 to {entries - 1} exactly once."
        )
    return checked


def _checked_factors(factors: Factors, norms: Tensor) -> Tensor:
    weights = factors(norms)
    if weights.shape != norms.shape:
        raise DpflError(
            f"Clipping factors must have the shape {tuple(norms.shape)}, but have "
            f"{tuple(weights.shape)}."
        )
    if not torch.isfinite(weights).all():
        raise NonFinite(
            "A clipping factor is not finite; divide by max(norm, bound), never by a norm of zero."
        )
    return weights.to(norms.dtype)
