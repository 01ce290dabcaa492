"""Weighted sums of gradients that are written out."""

import pytest
import torch
from torch import nn

from dpfl.gradients import products, unit_gradients
from dpfl.gradients.layers.convolution import convolution_weight
from dpfl.gradients.unit_gradients import sum_rows
from dpfl.privacy.mechanisms.clips.rounding import TERMS


@pytest.mark.parametrize("count", [0, 1, 3, TERMS, TERMS + 1])
def test_sums_of_any_number_of_rows(count: int) -> None:
    generator = torch.Generator().manual_seed(1)
    rows, weights = (
        torch.randn(count, 3, generator=generator),
        torch.rand(count, generator=generator).double(),
    )
    torch.testing.assert_close(
        sum_rows(weights, rows), weights @ rows.double(), rtol=1e-12, atol=1e-9
    )


def test_columns_are_summed_in_parts() -> None:
    rows = torch.randn(200, 2500, generator=torch.Generator().manual_seed(2))
    weights = torch.linspace(0, 1, 200, dtype=torch.float64)
    torch.testing.assert_close(
        sum_rows(weights, rows), weights @ rows.double(), rtol=1e-12, atol=1e-9
    )


@pytest.mark.parametrize("count", [0, 3, TERMS + 1])
def test_a_sum_is_written_over_what_was_there(count: int) -> None:
    """Also the sum of no unit, which is zeros."""
    x, g, weights = (
        torch.randn(count + 2, 4),
        torch.randn(count + 2, 3),
        torch.rand(count, dtype=torch.float64),
    )
    terms, rows = torch.randn(count + 2, 6, 4), torch.randn(count + 2, 6, 3)
    image, slopes = torch.randn(count + 2, 2, 5, 5), torch.randn(count + 2, 3, 3, 3)
    for gradient in (
        products.outer(x, g), unit_gradients.from_rows(x), products.sum_of_outer(terms, rows),
        unit_gradients.stack([products.outer(x, g), unit_gradients.from_rows(x)]),
        convolution_weight(nn.Conv2d(2, 3, 3), image, slopes),
    ):  # fmt: skip
        expected = weights @ gradient.rows(slice(0, count)).double()
        room = torch.full((len(expected),), torch.nan, dtype=torch.float64)
        found = gradient.weighted_sum(slice(0, count), weights, room)
        assert torch.equal(found, room)
        assert torch.allclose(room, expected, rtol=1e-4, atol=1e-4)
        assert torch.equal(gradient.weighted_sum(slice(0, count), weights), room)
