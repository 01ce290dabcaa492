"""Row counts at which every row of a batch gets the same bits, whoever else is in the batch.

A matrix product may sum in another order for another number of rows, or at another position of a
row. A server that chooses the model can turn the last bit into another prediction. Then one unit
changes what the others contribute. So rows are computed in chunks with a number of rows that has
passed a self-test on this machine. Where no number passes, units are computed one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

GRAINS = (32, 64, 96)
"""Row counts that are tried as the smallest chunk. All are multiples of 32: torch computes what is
left over of 2 x 16 numbers by a scalar function, whose last bit differs for a few inputs only (a
sigmoid's for 4 % of them), so that no test would be sure to see it. 96 suits kernels that take 6 or
24 rows at once."""

ORDERS = 6
"""Orders of the samples that the self-test of a function tries."""

ALIGNMENT = 64
"""Bytes. The memory of a torch tensor begins at a multiple of this."""


class ChunkSizes(Protocol):
    """Chooses how many rows the next chunk has."""

    def rows_for(self, units: int, per_unit: int = 1) -> int:
        """Chooses the number of rows of the next chunk.

        Args:
            units: The number of units that remain.
            per_unit: The number of rows of each unit.

        Returns:
            The number of rows. It may hold fewer units than remain, or fillers.
        """

    @property
    def path(self) -> str:
        """How units are computed, in words for the statement."""


@dataclass(frozen=True)
class UnpaddedSizes:
    """Chunks without fillers: the quickest, and without any promise about bits.

    Attributes:
        most: The largest chunk, in rows.
    """

    most: int
    path = "fast: results may depend on the batch in the last bits"

    def rows_for(self, units: int, per_unit: int = 1) -> int:
        """Takes as many units as remain, up to the largest chunk.

        Args:
            units: The number of units that remain.
            per_unit: The number of rows of each unit.

        Returns:
            The number of rows.
        """
        return per_unit * max(1, min(units, self.most // per_unit))


@dataclass
class InvariantSizes:
    """Row counts at which every unit gets the same bits.

    Attributes:
        most: The largest chunk, in rows.
        reference: Maps (rows, per_unit) to a digest of one sample's results, or None where these
            depend on its position or on other samples.
    """

    most: int
    reference: Callable[[int, int], bytes | None]
    _bases: dict[int, int | None] = field(default_factory=dict)

    def rows_for(self, units: int, per_unit: int = 1) -> int:
        """Chooses the smallest number of rows that holds all units and has passed the self-test.

        Args:
            units: The number of units that remain.
            per_unit: The number of rows of each unit.

        Returns:
            The number of rows: a multiple of the smallest size that passed, or one unit where none
            did.
        """
        base, same = self._base(per_unit)
        self._bases[per_unit] = base
        if base is None:
            return per_unit
        top = max(1, self.most // base)
        least = min(top, -(-units * per_unit // base))
        for count in (*range(least, top + 1), *range(least - 1, 1, -1)):
            if self.reference(count * base, per_unit) == same:
                return count * base
        return base

    def _base(self, per_unit: int) -> tuple[int | None, bytes | None]:
        """Finds the smallest size that passes and its digest; None where each unit is computed
        alone.
        """
        trials = ((rows, self.reference(rows, per_unit)) for rows in self._candidates(per_unit))
        return next(((rows, digest) for rows, digest in trials if digest is not None), (None, None))

    def _candidates(self, per_unit: int) -> Iterator[int]:
        for grain in GRAINS:
            rows = grain * (-(-per_unit // grain))
            if rows <= self.most and rows % per_unit == 0 and rows > per_unit:
                yield rows

    @property
    def path(self) -> str:
        """How units are computed, in words for the statement."""
        alone = [per_unit for per_unit, base in self._bases.items() if base is None]
        return (
            "exact: one unit at a time"
            if alone
            else "exact: padded chunks that passed the self-test"
        )


def checksum(values: Tensor, units: int) -> Tensor:
    """Computes a whole number, modulo 2^64, from the bits of each unit's values. NaN is equal to
    itself.

    Args:
        values: Values (rows, ...), unit by unit.
        units: The number of units.

    Returns:
        One number for each unit.
    """
    bits = values.nan_to_num() if values.is_floating_point() else values
    bits = bits.reshape(units, -1).contiguous()
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[bits.element_size()]
    width = max(1, (1 << 22) // units)
    total = torch.zeros(units, dtype=torch.int64)
    for start in range(0, bits.shape[1], width):
        part = bits[:, start : start + width].contiguous().view(kind).long()
        odd = 2 * torch.arange(start + 1, start + 1 + part.shape[1]) * 0x9E3779B97F4A7C1 + 1
        total += (part * odd).sum(1)
    return total


class RowFunction:
    """A function of rows, applied in chunks that give a row the same result in every batch.

    Args:
        function: Maps samples (n, ...) to results (n, ...), each sample by itself.
        most: The largest chunk, in rows.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], most: int) -> None:
        self._function, self._most = function, most
        self._sizes: dict[tuple[object, ...], InvariantSizes] = {}

    def __call__(self, samples: Tensor) -> Tensor:
        """Applies the function to all samples.

        Args:
            samples: The samples (n, ...).

        Returns:
            The results (n, ...).
        """
        if not len(samples):
            return self._function(samples)
        results = samples.new_empty(len(samples), *self._function(pad(samples[:1], 1)).shape[1:])
        first = 0
        for (chunk,), count in padded_chunks(self._sizes_for(samples), samples):
            results[first : first + count] = self._function(chunk)[:count]
            first += count
        return results

    def _sizes_for(self, samples: Tensor) -> InvariantSizes:
        key = samples.dtype, tuple(samples.shape[1:]), torch.get_num_threads()
        if key not in self._sizes:
            shape = tuple(samples.shape[1:])
            references: dict[int, bytes | None] = {}

            def reference(rows: int, per_unit: int) -> bytes | None:
                if rows not in references:
                    references[rows] = self._test(rows, shape)
                return references[rows]

            self._sizes[key] = InvariantSizes(self._most, reference)
        return self._sizes[key]

    @torch.no_grad()
    def _test(self, rows: int, shape: tuple[int, ...]) -> bytes | None:
        """Computes a digest of the first results, or None where they depend on the place of a
        sample or on its companions.
        """
        generator = torch.Generator().manual_seed(0)
        samples = torch.rand(max(rows, GRAINS[-1]), *shape, generator=generator)[:rows].contiguous()
        expected_checksum = checksum(self._function(samples), rows)
        for number in range(ORDERS):
            order = (
                torch.arange(rows).roll(1)
                if not number
                else torch.randperm(rows, generator=generator)
            )
            if not torch.equal(
                checksum(self._function(samples[order]), rows), expected_checksum[order]
            ):
                return None
        beside = samples.clone()
        beside[1::2] = 0
        if not torch.equal(checksum(self._function(beside), rows)[::2], expected_checksum[::2]):
            return None
        return expected_checksum[: min(rows, GRAINS[0])].numpy().tobytes()


def padded_chunks(sizes: ChunkSizes, *tensors: Tensor) -> Iterator[tuple[tuple[Tensor, ...], int]]:
    """Cuts the rows of tensors into chunks, with rows of zeros behind the last.

    Args:
        sizes: Chooses the number of rows of the next chunk.
        tensors: Tensors with equally many rows.

    Yields:
        The rows of each tensor, and how many rows of the chunk are not fillers.
    """
    first = 0
    while first < len(tensors[0]):
        rows = sizes.rows_for(len(tensors[0]) - first)
        last = min(first + rows, len(tensors[0]))
        yield tuple(pad(values[first:last], rows) for values in tensors), last - first
        first = last


def pad(values: Tensor, rows: int) -> Tensor:
    """Appends rows of zeros to values, in memory that begins where torch's own does.

    Kernels heed the address.

    Args:
        values: The values (n, ...).
        rows: The number of rows of the result, at least n.

    Returns:
        The values themselves, where they already have this form.
    """
    if len(values) == rows and values.is_contiguous() and values.data_ptr() % ALIGNMENT == 0:
        return values
    padded_values = values.new_zeros(rows, *values.shape[1:])
    padded_values[: len(values)] = values
    return padded_values
