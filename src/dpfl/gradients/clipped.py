"""Clipped sums: each unit's gradient, clipped, and summed over a batch. This is the hot path.

A private step adds its noise to

    S = sum_i f(|g_i|) g_i    with, for flat clipping, f(n) = min(1, C / n).

The unit i is a sample, or a person: then g_i is the mean over the person's rows. A batch of B units
and a model of d parameters has B d numbers in its gradients g_i, so they are not all written out:

1. `chunks.py` cuts the batch into chunks.
2. A pass (`passes/`) runs each chunk forward and backward once. For each layer it keeps the input a
   and the gradient b at the output, of all samples.
3. A rule for each kind of layer (`layers/`) turns a and b into a `UnitGradients`: the squared norm
   of each unit's gradient, and a function that sums the gradients under weights.
4. The squared norms of a group of parameters add up to |g_i|^2, and `factors` maps norms to
   multipliers.
5. The weighted sums of all parameters are written into S, in layout order.

A linear layer on one vector has the gradient b a^T, of the norm |a| |b| (Goodfellow 2015). With T
positions it is sum_t b_t a_t^T. Its squared norm sum_st (a_s . a_t) (b_s . b_t) comes from two Gram
matrices: the ghost norm (Li et al. 2021). As a and b are kept, sum_i f_i b_i a_i^T is one more
matrix product and needs no second backward pass: book-keeping (Bu et al. 2022a). Where Gram
matrices would move more data than the gradients, these are written out: mixed ghost clipping (Bu et
al. 2022b). `products.py` decides.

The noise is only right if one unit, added or removed, moves S *as it is computed* by at most C.
Three things give that in floats (docs/privacy.md, "Float arithmetic"):

- A unit's gradient has the same bits whoever else is in the batch. Only chunk sizes that pass a
  self-test are used (`self_test.py`); where none passes, units are computed one at a time.
- A norm is an upper bound on the norm of what is summed (`privacy/mechanisms/clips/rounding.py`).
- The sum over units is in float64, of at most as many units as its rounding allows
  (`sum_rounding.py`).

What has no such bound is refused: a model in which one sample changes what another contributes
(`mixing.py`, batch statistics), weights that are not finite, clip factors that are not finite. A
unit whose loss or gradient is not finite counts as 0 and changes no other unit.

    >>> gradients = ClippedGradients(FlatModel(torch.nn.Linear(4, 2)))
    >>> total = gradients(torch.randn(8, 4), torch.arange(8) % 2, Flat(1.0).factors).total
    >>> bool(total.norm() <= 8)  # eight clipped gradients, each no longer than 1
    True

References:
    Goodfellow (2015), Efficient per-example gradient computations, arXiv:1510.01799.
    Li, Tramer, Liang, Hashimoto (2021), Large language models can be strong differentially private
        learners, arXiv:2110.05679.
    Bu, Wang, Zha, Karypis (2022a), Differentially private optimization on large model at small
        cost, arXiv:2210.00038.
    Bu, Mao, Xu (2022b), Scalable and efficient training of large convolutional neural networks
        with differential privacy, arXiv:2205.10683.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from dpfl.bad_values import require_choice
from dpfl.errors import DpflError
from dpfl.gradients.chunks import Array, Chunk, rows_per_unit, sample_chunks, unit_chunks
from dpfl.gradients.clip_factors import Factors, NonFinite, check_groups, compute_factors
from dpfl.gradients.mixing import refuse_mixing
from dpfl.gradients.passes.selection import PassSelection
from dpfl.gradients.self_test import SelfTest
from dpfl.gradients.sum_rounding import WEIGHING, check_units, most_units
from dpfl.gradients.unit_gradients import LayoutSum, UnitGradients, UnitIndex, UnsupportedLayer
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models import FlatModel, refuse_batch_statistics
from dpfl.models.row_sizes import ChunkSizes, InvariantSizes, UnpaddedSizes
from dpfl.privacy.mechanisms.clips.rounding import COVER, DOUBLE, gamma

_ROWS_BLOCK = 1 << 26
# The most numbers of gradients that are written out at a time.


ARITHMETIC = ("exact", "fast")
"""The words for the arithmetic of `ClippedGradients`."""


@dataclass(frozen=True)
class ClippedSum:
    """The sum over units of factor * gradient.

    A person's gradient and loss are the means over their rows. A unit whose loss or gradient is
    not finite counts as 0 in all three attributes.

    Attributes:
        total: The sum in layout order, in float64.
        norms: Upper bounds (B, groups) on the norms before clipping, in float64.
        losses: The losses (B,).
    """

    total: Tensor
    norms: Tensor
    losses: Tensor


class ClippedGradients:
    """Computes clipped sums for one model. The module carries hooks only while a sum is computed.

    Args:
        model: The model whose gradients are clipped.
        groups: Layout entries that are clipped together, each group by a norm of its own. By
            default, all entries are one group.
        chunk: The largest number of rows that are computed at a time.
        arithmetic: "exact" gives every unit the same bits in any batch. "fast" leaves the padding
            of chunks out; it is for simulations.

    Raises:
        DpflError: The model has batch statistics, or an argument is out of its range.
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
        require_choice(arithmetic, "arithmetic", ARITHMETIC)
        self.model = model
        self.groups = check_groups(groups, len(model.parameters))
        self.passes = PassSelection(model)
        self._exact = arithmetic == "exact"
        self._chunk = chunk
        self._row_chunk = max(1, min(chunk, _ROWS_BLOCK // model.layout.trainable))
        self._is_checked = False
        self._sizes: dict[tuple[Any, ...], ChunkSizes] = {}

    @property
    def path(self) -> str:
        """How units were computed, in words for the statement."""
        paths = [sizes.path for sizes in self._sizes.values()]
        return next((path for path in paths if "one unit" in path), paths[0] if paths else "")

    def __call__(
        self, x: Tensor, y: Tensor, factors: Factors, unit_ids: Tensor | None = None
    ) -> ClippedSum:
        """Computes the clipped sum over a batch.

        Args:
            x: The samples.
            y: Their labels.
            factors: Maps norms (B, groups) to multipliers (B, groups).
            unit_ids: The unit of each row: 0, 1, 2, ..., ascending. Without it, every row is a
                unit.

        Returns:
            The sum, and the norms and losses of the units.

        Raises:
            NonFinite: A weight of the model or a clip factor is not finite.
            DpflError: The model mixes samples, or the batch has too many units.
        """
        self._check(x, y)
        counts = None if unit_ids is None else rows_per_unit(unit_ids, len(x))
        while True:
            try:
                return self._sum(x, y, factors, counts)
            # The whole batch again: a unit's bits must not depend on who came before it.
            except UnsupportedLayer as reason:
                self.passes.fall_back(reason)

    @torch.no_grad()
    def largest_batch(self, x: Tensor, y: Tensor, persons: bool) -> float:
        """Computes how many units a batch may have so that its float64 sum stays within the margin.

        Args:
            x: Samples, of which only the shape and type matter: a refusal tells nothing of them.
            y: Labels, likewise.
            persons: Whether the unit is a person.

        Returns:
            The largest number of units.
        """
        if persons:
            return most_units(1 / COVER)
        while True:
            try:
                rows, labels = (
                    values.new_zeros(self._chunk, *values.shape[1:]) for values in (x, y)
                )
                gradients = self.passes.current(rows, labels)[1]
                additions = max(gradient.additions for gradient in gradients)
                cancellation = max(gradient.cancellation for gradient in gradients)
                return most_units(cancellation, additions + WEIGHING)
            except UnsupportedLayer as reason:
                self.passes.fall_back(reason)

    def rows(self, x: Tensor, y: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Writes out the samples' gradients, as many at a time as memory should hold.

        Args:
            x: The samples.
            y: Their labels.

        Yields:
            A slice of the batch, and the gradients (b, trainable) of its samples.

        Raises:
            DpflError: Some samples need another pass than those before them.
        """
        for units, rows in self._written_out(x, y, None):
            yield slice(int(units[0]), int(units[-1]) + 1), rows

    def unit_rows(self, x: Tensor, y: Tensor, unit_ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Writes out the units' gradients, which are the means over their rows.

        Args:
            x: The samples.
            y: Their labels.
            unit_ids: The unit of each row: 0, 1, 2, ..., ascending.

        Yields:
            The numbers of some units, and their gradients (b, trainable).

        Raises:
            DpflError: Some samples need another pass than those before them.
        """
        for units, rows in self._written_out(x, y, rows_per_unit(unit_ids, len(x))):
            yield torch.from_numpy(units), rows

    @torch.no_grad()
    def _sum(self, x: Tensor, y: Tensor, factors: Factors, counts: Array | None) -> ClippedSum:
        units = len(x) if counts is None else len(counts)
        total = LayoutSum(self.model)
        norms = torch.zeros(units, len(self.groups), dtype=torch.float64)
        losses = torch.zeros(units)
        self._cancellation, self._additions = 1.0, 0
        for chunk in self._chunks(x, y, counts, self._chunk):
            places = torch.from_numpy(chunk.units)
            add = self._add_large if chunk.large else self._add
            norms[places], losses[places] = add(chunk, factors, total)
        check_units(units, self._additions, self._cancellation)
        return ClippedSum(total.vector, norms, losses)

    def _add(self, chunk: Chunk, factors: Factors, total: LayoutSum) -> tuple[Tensor, Tensor]:
        """Adds the clipped gradients of a chunk's units to the total."""
        losses, gradients = self._compute(chunk)
        norms, count = self._norms(gradients), len(chunk.units)
        self._cancellation = max(self._cancellation, *(g.cancellation for g in gradients))
        self._additions = max(self._additions, *(g.additions for g in gradients))
        norms, losses = norms[:count], losses[:count]
        finite = torch.isfinite(norms).all(1) & torch.isfinite(losses)
        units: UnitIndex = slice(0, count)
        if not finite.all():
            units = finite.nonzero().flatten()
            norms, losses = norms.where(finite[:, None], 0.0), losses.where(finite, 0.0)
        weights = compute_factors(factors, norms)[units]
        for weight, group in zip(weights.T.contiguous(), self.groups, strict=True):
            for entry in group:
                total.add(entry, gradients[entry], units, weight)
        return norms, losses

    def _add_large(self, chunk: Chunk, factors: Factors, total: LayoutSum) -> tuple[Tensor, Tensor]:
        """Adds one unit that has more rows than a chunk. Its own mean is formed first."""
        loss, mean = self._mean(chunk.x, chunk.y)
        spans = [[self.model.layout.span(entry) for entry in group] for group in self.groups]
        squares = [torch.stack([mean[span].square().sum() for span in own]).sum() for own in spans]
        norms = torch.stack(squares).sqrt()[None] * (1 + gamma(self.model.layout.trainable, DOUBLE))
        for weight, group in zip(compute_factors(factors, norms)[0], self.groups, strict=True):
            for entry in group:
                total.add_vector(entry, weight * mean[self.model.layout.span(entry)])
        return norms, loss[None]

    def _mean(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Computes loss and gradient, in float64, of one unit of many rows; zeros where not
        finite.
        """
        total, loss = LayoutSum(self.model), torch.zeros((), dtype=torch.float64)
        for chunk in self._chunks(x, y, None, self._chunk):
            losses, gradients = self._compute(chunk)
            count = len(chunk.units)
            share = torch.full((count,), 1 / len(x), dtype=torch.float64)
            loss += losses[:count].double().sum() / len(x)
            for entry, gradient in enumerate(gradients):
                total.add(entry, gradient, slice(0, count), share)
        mean = total.vector
        finite = torch.isfinite(mean).all() & torch.isfinite(loss)
        return (loss.float(), mean) if finite else (torch.zeros(()), torch.zeros_like(mean))

    @torch.no_grad()
    def _written_out(
        self, x: Tensor, y: Tensor, counts: Array | None
    ) -> Iterator[tuple[Array, Tensor]]:
        """Yields units and their gradients. A pass may be given up only before the first of
        them.
        """
        self._check(x, y)
        chunks_before = 0
        while True:
            try:
                for chunk in list(self._chunks(x, y, counts, self._row_chunk))[chunks_before:]:
                    if chunk.large:
                        yield chunk.units, self._mean(chunk.x, chunk.y)[1].float()[None]
                    else:
                        yield chunk.units, self._rows_of(chunk)
                    chunks_before += 1
                return
            except UnsupportedLayer as reason:
                if chunks_before:
                    raise DpflError(
                        f"The model computes gradients in another way for some samples ({reason})."
                    ) from None
                self.passes.fall_back(reason)

    def _rows_of(self, chunk: Chunk) -> Tensor:
        losses, gradients = self._compute(chunk)
        count = len(chunk.units)
        rows = torch.cat([g.rows(slice(0, len(losses))) for g in gradients], dim=1)[:count]
        if not torch.isfinite(rows.sum() + losses[:count].sum()):
            rows[~(torch.isfinite(rows).all(1) & torch.isfinite(losses[:count]))] = 0
        return rows

    def _compute(self, chunk: Chunk) -> tuple[Tensor, list[UnitGradients]]:
        """Computes the losses and gradients of a chunk's units, fillers included."""
        losses, gradients = self.passes.current(chunk.x, chunk.y, chunk.rows)
        return losses if chunk.rows is None else chunk.rows.sum(chunk.rows.weigh(losses)), gradients

    def _chunks(self, x: Tensor, y: Tensor, counts: Array | None, most: int) -> Iterator[Chunk]:
        sizes = self._sizes_for(x, y, most)
        if counts is not None and len(counts) < len(x):
            return unit_chunks(sizes, x, y, counts, most)
        return sample_chunks(sizes, x, y)

    def _sizes_for(self, x: Tensor, y: Tensor, most: int) -> ChunkSizes:
        current = self.passes.current
        most = min(most, self._row_chunk) if current.writes_rows else most
        name = type(current).__name__
        key = name, most, x.dtype, tuple(x.shape[1:]), y.dtype, tuple(y.shape[1:])
        if key not in self._sizes:
            test = SelfTest(self.model, self._outputs, f"gradients {name}", x[:1], y[:1])
            self._sizes[key] = (
                InvariantSizes(most, test.reference) if self._exact else UnpaddedSizes(most)
            )
        return self._sizes[key]

    def _outputs(self, x: Tensor, y: Tensor, rows: UnitRows | None) -> list[Tensor]:
        """Computes all that must not depend on the batch: losses, norms, and the factors of
        gradients.
        """
        losses, gradients = self._compute(Chunk(x, y, torch.arange(0).numpy(), rows))
        everything = slice(0, len(losses))
        parts = [gradient.parts or (gradient.rows(everything),) for gradient in gradients]
        return [losses, *(g.squares for g in gradients), *(part for own in parts for part in own)]

    def _norms(self, gradients: list[UnitGradients]) -> Tensor:
        """Computes each unit's norm per group, adding whole tensors so that all units are summed
        alike.
        """
        columns = [
            reduce(torch.add, (gradients[entry].squares for entry in group))
            for group in self.groups
        ]
        return torch.stack(columns, dim=1).sqrt()

    def _check(self, x: Tensor, y: Tensor) -> None:
        """Refuses a model that is not finite, or mixes samples, whatever the batch is.

        An empty batch is no exception: whoever sent the model must not learn that it is empty.
        """
        if not (torch.isfinite(self.model.vector.sum()) or torch.isfinite(self.model.vector).all()):
            raise NonFinite("The model's weights are not finite; lower the learning rate.")
        if len(x) != len(y):
            raise DpflError(
                f"A batch needs one label per sample, but has {len(x)} samples and {len(y)} labels."
            )
        if not self._is_checked:
            refuse_mixing(self.model, x)
            self._is_checked = True
