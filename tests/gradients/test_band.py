"""Norms of units from windows along the diagonal of the Gram matrices: right where rows cancel, and never from other units."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpfl.gradients.band import Band


def band(sizes: list[int]) -> tuple[Band, Tensor]:
    whose = torch.repeat_interleave(torch.tensor(sizes))
    return Band(whose.numpy(), len(sizes), max(sizes)), whose


def rows(count: int, width: int, seed: int) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def written_out(x: Tensor, g: Tensor, whose: Tensor) -> Tensor:
    """Squared norms in float64."""
    outer = (g.double().unsqueeze(2) * x.double().unsqueeze(1)).flatten(1)
    return torch.zeros(int(whose.max()) + 1, outer.shape[1], dtype=torch.float64).index_add_(0, whose, outer).square().sum(1)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 99))
def test_squares_of_units(sizes: list[int], seed: int) -> None:
    found, whose = band(sizes)
    x, g = rows(len(whose), 5, seed), rows(len(whose), 3, seed + 100)
    torch.testing.assert_close(found.squares(x, g).double(), written_out(x, g, whose), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("left", [1e-2, 1e-4, 1e-6])
def test_rows_that_cancel_leave_no_less_than_there_is(left: float) -> None:
    """In float32 the Gram matrices would leave nothing, or anything, of a unit of two rows that nearly cancel."""
    found, whose = band([3, 2, 1])
    x, g = rows(6, 300, 0), rows(6, 40, 1)
    x[4], g[4] = -x[3] * (1 + left), g[3]
    squares, expected = found.squares(x, g).double(), written_out(x, g, whose)
    lengths = torch.zeros(3, dtype=torch.float64).index_add_(0, whose, x.double().norm(dim=1) * g.double().norm(dim=1))
    above = squares.sqrt() - expected.sqrt()
    assert (above > 0).all(), "a norm covers what rounding adds to it"
    assert (above < 1e-6 * expected.sqrt() + 4e-7 * lengths).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_unit(bad: float) -> None:
    found, whose = band([1, 2, 2, 4])
    x, g = rows(9, 5, 0), rows(9, 3, 1)
    expected = written_out(x, g, whose)
    x[3] = bad
    squares = found.squares(x, g).double()
    assert not torch.isfinite(squares[2])
    torch.testing.assert_close(squares[[0, 1, 3]], expected[[0, 1, 3]], rtol=1e-6, atol=0)
