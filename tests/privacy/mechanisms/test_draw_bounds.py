"""The bound on the size of a draw, against the exact tail of the binomial distribution."""

import math

import pytest
from scipy import stats

from dpfl.privacy import FixedSize, Poisson
from dpfl.privacy.mechanisms.draw_bounds import NEGLIGIBLE, largest_draw


@pytest.mark.parametrize(
    ("rate", "population"), [(0.01, 1000), (0.5, 300), (0.001, 100_000), (1.0, 50)]
)
def test_a_draw_is_hardly_ever_larger_than_its_bound(rate: float, population: int) -> None:
    """Against the exact tail of the binomial distribution."""
    most = largest_draw(Poisson(rate), population)
    tail = float(stats.binom.logsf(math.floor(most), population, rate))
    assert tail <= math.log(NEGLIGIBLE)
    assert rate * population <= most <= population
    assert largest_draw(FixedSize(7), 100) == 7
