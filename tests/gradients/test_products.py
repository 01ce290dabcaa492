"""Sums of outer products in blocks, by either way, against what float64 writes out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dpfl.gradients import products as module
from dpfl.gradients.products import _Products, outer, sum_of_outer
from dpfl.gradients.unit_gradients import UnitGradients, from_rows, stack
from dpfl.privacy.mechanisms.clips.rounding import COVER

UNITS, GROUPS, LENGTH, HEIGHT, WIDTH = 7, 2, 3, 4, 5


def factors() -> tuple[Tensor, Tensor, Tensor]:
    """Left and right factors, and the gradients of all units, written out."""
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(UNITS, GROUPS, LENGTH, HEIGHT, generator=generator)
    right = torch.randn(UNITS, GROUPS, LENGTH, WIDTH, generator=generator)
    return left, right, torch.einsum("bgth,bgtw->bghw", left.double(), right.double()).flatten(1)


def both_ways(left: Tensor, right: Tensor) -> dict[str, UnitGradients]:
    found = _Products(left, lambda block, room: room.copy_(right[block]), WIDTH)
    return {"compared": found.by_gram(), "written": found.by_rows()}


@pytest.mark.parametrize("way", ["compared", "written"])
@pytest.mark.parametrize("block", [1, 10, 40, 100, 1 << 21])
@pytest.mark.parametrize("keep", [1, 1 << 25])
def test_norms_sums_and_rows_are_the_same_in_blocks_of_any_size(
    monkeypatch, way: str, block: int, keep: int
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_KEEP", keep)
    left, right, rows = factors()
    found = both_ways(left, right)[way]
    norms = rows.square().sum(1)
    assert (found.squares >= norms).all(), "an upper bound"
    torch.testing.assert_close(found.squares, norms, rtol=2e-2, atol=0)
    torch.testing.assert_close(found.rows(slice(2, 6)).double(), rows[2:6], rtol=1e-5, atol=1e-5)
    for chosen in (slice(0, UNITS), slice(0, 5), torch.tensor([0, 2, 3, 6]), torch.tensor([4])):
        weights = torch.linspace(0.1, 0.9, len(rows[chosen]), dtype=torch.float64)
        torch.testing.assert_close(
            found.weighted_sum(chosen, weights), weights @ rows[chosen], rtol=1e-5, atol=1e-5
        )


def test_what_cancels_is_said_to_amplify_rounding() -> None:
    """Terms of a unit may be that much longer than its norm where norms come from Gram matrices,
    and nowhere else.
    """
    left, right, rows = factors()
    found = both_ways(left, right)
    assert found["compared"].cancellation == pytest.approx(1 / COVER)
    assert 1 / COVER > 1
    assert (
        found["written"].cancellation
        == outer(left[:, 0, 0], right[:, 0, 0]).cancellation
        == from_rows(rows.float()).cancellation
        == 1
    )


def test_gradients_beside_each_other_have_the_squares_of_all_and_the_worst_rounding() -> None:
    left, right, rows = factors()
    found = both_ways(left, right)
    for parts in ([found["written"], found["compared"]], [found["compared"], found["written"]]):
        both = stack(parts)
        assert both.cancellation == pytest.approx(1 / COVER)
        torch.testing.assert_close(both.squares, parts[0].squares + parts[1].squares)
        weights = torch.ones(UNITS, dtype=torch.float64)
        torch.testing.assert_close(
            both.weighted_sum(slice(0, UNITS), weights), rows.sum(0).repeat(2), rtol=1e-5, atol=1e-5
        )
        assert both.rows(slice(1, 3)).shape == (2, 2 * rows.shape[1])
        assert both.parts == ()


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 3), (1, 3), (4, 1), (1, 1)])
def test_one_term_is_an_outer_product_whatever_its_sizes(inputs: int, outputs: int) -> None:
    torch.manual_seed(0)
    x, g, weights = (
        torch.randn(5, 1, inputs),
        torch.randn(5, 1, outputs),
        torch.rand(5, dtype=torch.float64),
    )
    gradient = sum_of_outer(x, g)
    rows = torch.bmm(g.mT, x).flatten(1)
    assert gradient.cancellation == 1
    assert torch.equal(gradient.rows(slice(0, 5)), rows)
    assert torch.allclose(
        gradient.weighted_sum(slice(0, 5), weights), weights @ rows.double(), rtol=0, atol=1e-5
    )
    assert (gradient.squares >= rows.double().square().sum(1)).all()
