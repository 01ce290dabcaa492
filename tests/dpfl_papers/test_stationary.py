"""The stationary points of problem (8) against its closed form."""

from __future__ import annotations

import pytest

from dpfl_papers.stationary import StationaryPoint


@pytest.mark.parametrize(
    ("steps", "clip", "point"),
    [
        (1, None, 0.0),
        (1, 0.1, 0.0),
        (1, 1.0, 0.0),
        (2, None, 0.0296210251),
        (2, 0.1, 0.1912512716),
        (32, None, 0.6476412537),
        (32, 0.1, 0.5),
        (32, 1.0, 0.6476412537),
        (128, None, 1.1866074498),
        (128, 0.1, 0.5),
        (128, 1.0, 0.6671161424),
    ],
)
def test_fedavg_stops_where_the_closed_form_says(
    steps: int, clip: float | None, point: float
) -> None:
    assert StationaryPoint(steps, clip).run(0, None).value == pytest.approx(point, abs=1e-10)
