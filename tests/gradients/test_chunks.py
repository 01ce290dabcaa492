"""Batches in chunks: their memory, and units that are filled up to a power of two."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dpfl.errors import DpflError
from dpfl.gradients.chunks import rows_per_unit, unit_chunks
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.models.row_sizes import GRAINS, UnpaddedSizes
from dpfl.privacy import Flat


def test_chunks_of_memory_that_is_not_aligned_are_copied() -> None:
    x = torch.randn(40, 13)
    moved = torch.empty(40 * 13 + 1)[1:].view(40, 13).copy_(x)
    computed, clip, y = (
        ClippedGradients(FlatModel(nn.Linear(13, 3))),
        Flat(0.5),
        torch.arange(40) % 3,
    )
    for some in (x, moved):
        padded = chunks_of(computed, some[3:19], y[3:19])
        assert all(chunk.data_ptr() % 64 == 0 for chunk in padded)
    assert torch.equal(computed(moved, y, clip.factors).norms, computed(x, y, clip.factors).norms)


def chunks_of(computed: ClippedGradients, x: Tensor, y: Tensor) -> list[Tensor]:
    return [chunk.x for chunk in computed._chunks(x, y, None, GRAINS[-1])]


def test_a_unit_is_filled_up_to_a_power_of_two_by_rows_that_count_nothing() -> None:
    x, counts = torch.arange(9.0)[:, None], np.array([3, 1, 5])
    chunks = list(unit_chunks(UnpaddedSizes(8), x, torch.zeros(9), counts, 4))
    assert [chunk.units.tolist() for chunk in chunks] == [[1], [0], [2]]
    alone, filled, large = chunks
    assert alone.x.flatten().tolist() == [3.0]
    assert filled.rows is not None
    assert filled.x.flatten().tolist() == [0.0, 1.0, 2.0, 2.0]
    assert filled.rows.shares.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0])
    assert large.large
    assert large.x.flatten().tolist() == [4.0, 5.0, 6.0, 7.0, 8.0]


def test_units_are_counted_by_their_rows() -> None:
    assert rows_per_unit(torch.tensor([0, 0, 1, 2, 2, 2]), 6).tolist() == [2, 1, 3]
    for wrong in ([0, 1], [1, 1, 2], [0, 2, 2], [0, 1, 0]):
        with pytest.raises(DpflError, match="ascending order"):
            rows_per_unit(torch.tensor(wrong), 3)
