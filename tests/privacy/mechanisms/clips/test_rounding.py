"""Upper bounds on norms, with the constants of docs/privacy.md."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpfl.privacy.mechanisms.clips import rounding
from dpfl.privacy.mechanisms.clips.clip import MARGIN, Flat, PerLayer
from dpfl.privacy.mechanisms.clips.rounding import cover_cancellation, gamma, squared_norms
from dpfl.privacy.mechanisms.clips.vector_clipping import clip_vector
from dpfl.privacy.queries.bounded_sum import bounded_sum, scale_down

PAGE = Path(__file__).parents[4] / "docs" / "privacy.md"


def test_the_constants_are_those_of_the_page() -> None:
    text = PAGE.read_text()
    assert rounding.SINGLE == 1 / 16777216
    assert rounding.DOUBLE == 1 / 9007199254740992
    assert (rounding.BLOCK, rounding.TERMS, rounding.COVER, MARGIN) == (
        256,
        512,
        1 / 2048,
        1 / 65536,
    )
    for line in ("MARGIN = 2^-16", "COVER = 2^-11", "BLOCK = 256", "TERMS = 512"):
        assert line in text, line


def test_gamma() -> None:
    assert gamma(1000) == pytest.approx(1000 / 2**24 / (1 - 1000 / 2**24))
    assert gamma(1000, 2.0**-53) == pytest.approx(1000 / 2**53)


@given(st.integers(1, 2000), st.floats(-15, 15), st.integers(0, 2**20))
def test_squared_norms_are_not_below_the_truth(width: int, size: float, seed: int) -> None:
    rows = torch.randn(3, width, generator=torch.Generator().manual_seed(seed)) * 10**size
    truth = rows.double().square().sum(1)
    assert (squared_norms(rows) >= truth).all()
    assert (squared_norms(rows) <= truth * (1 + 1e-4)).all()


def test_equal_numbers_round_the_same_way_in_every_addition() -> None:
    """The worst for a running sum: each addition of the same square loses the same."""
    for value in (1 + 2.0**-23, 1.1, 1.3333334, 1.9999999):
        rows = torch.full((2, 10_000), value)
        assert (squared_norms(rows) >= rows.double().square().sum(1)).all()


def test_cancellation_is_covered_by_a_share_of_the_lengths() -> None:
    one = torch.ones(1, dtype=torch.float64)
    assert float(cover_cancellation(one * 0, one, 1).sqrt()) == pytest.approx(1 / 2048)
    assert float(cover_cancellation(one * 0, one, 10_000).sqrt()) == pytest.approx(
        2 * gamma(10_000)
    )


@pytest.mark.parametrize("clip", [Flat(0.5), PerLayer(0.5)])
@given(seed=st.integers(0, 2**20), size=st.floats(-4, 8))
def test_a_clipped_vector_is_inside_less_the_margin(
    clip: Flat | PerLayer, seed: int, size: float
) -> None:
    vector = torch.randn(3000, generator=torch.Generator().manual_seed(seed)) * 10**size
    clipped, _ = clip_vector(vector, clip, ("a.weight", "b.weight"), (0, 1000, 3000))
    assert float(clipped.double().norm()) <= 0.5 * (1 - MARGIN) * (1 + 1e-6)


def test_what_a_sample_counts_with_is_bounded_in_float64() -> None:
    rows = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)) * 100
    rows[3, 2] = torch.nan
    inside = scale_down(rows, 2.0)
    assert inside.dtype == torch.float64
    assert float(inside.norm(dim=1).max()) <= 2 * (1 - MARGIN) * (1 + 1e-12)
    assert not inside[3].any()
    moved = bounded_sum([rows], 7, 2.0) - bounded_sum([rows[1:]], 7, 2.0)
    assert float(moved.norm()) <= 2


def test_the_unit_roundoff_of_each_format_is_that_of_ieee_754():
    assert torch.finfo(torch.float64).eps / 2 == rounding.DOUBLE
    assert gamma(1, rounding.DOUBLE) == pytest.approx(2.0**-53)
