"""The number of units of a sum, so that its rounding stays within the margin of the clip."""

import math

import pytest
import torch
from torch import nn

from dpfl.errors import DpflError
from dpfl.gradients import sum_rounding
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.sum_rounding import most_units
from dpfl.models import FlatModel
from dpfl.privacy import Flat
from dpfl.privacy.mechanisms.clips.clip import MARGIN
from dpfl.privacy.mechanisms.clips.rounding import COVER, DOUBLE, TERMS, gamma


def test_more_units_than_the_margin_covers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The float64 rounding of two sums, 2 B (gamma_n C / COVER + gamma_B C), stays within half of
    the margin, also where each of the B units is added by itself."""
    for cancellation in (1.0, 1 / COVER):
        units = most_units(cancellation)
        rounding = (
            2 * units * (gamma(2 * TERMS, DOUBLE) * cancellation + gamma(math.ceil(units), DOUBLE))
        )
        assert rounding == pytest.approx(MARGIN / 2, rel=1e-4)
    assert most_units(1 / COVER) > 16_000
    assert most_units(1.0) > 180_000
    monkeypatch.setattr(sum_rounding, "most_units", lambda *_: 2)
    computed = ClippedGradients(FlatModel(nn.Linear(4, 2)))
    with pytest.raises(DpflError, match="3 units is too large"):
        computed(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64), Flat(1.0).factors)


def test_each_addition_of_a_result_is_a_rounding_that_the_margin_covers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound of n roundings is for n: units that are computed one at a time are added one after
    another.
    """
    for additions in (0, TERMS, 5000):
        units, depth = most_units(1 / COVER, additions), TERMS + max(TERMS, additions)
        rounding = 2 * units * (gamma(depth, DOUBLE) / COVER + gamma(math.ceil(units), DOUBLE))
        assert rounding == pytest.approx(MARGIN / 2, rel=1e-4)
    seen = []
    monkeypatch.setattr(sum_rounding, "most_units", lambda *given: seen.append(given) or 1e9)
    computed = ClippedGradients(
        FlatModel(nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(3 * 700, 2)))
    )
    computed(
        torch.zeros(40, 700, dtype=torch.int64),
        torch.zeros(40, dtype=torch.int64),
        Flat(1.0).factors,
    )
    ((cancellation, additions),) = seen
    assert cancellation == 1 / COVER
    assert additions > 700
