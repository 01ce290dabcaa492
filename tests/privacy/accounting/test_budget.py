"""What a run may spend, checked when it is said."""

import math

import pytest

from dpfl.errors import DpflError
from dpfl.privacy import Budget


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf])
def test_an_impossible_epsilon_is_refused(epsilon):
    with pytest.raises(
        DpflError, match=r"epsilon must be a positive number, not .*typical budgets"
    ):
        Budget(epsilon=epsilon)


@pytest.mark.parametrize("delta", [0, 1, 2, -1, math.nan])
def test_an_impossible_delta_is_refused(delta):
    with pytest.raises(
        DpflError, match=r"delta must lie between 0 and 1, not .*below one over the records"
    ):
        Budget(epsilon=1.0, delta=delta)
    with pytest.raises(DpflError, match="delta"):
        Budget(rounds=3, delta=delta)


@pytest.mark.parametrize("name", ["rounds", "bytes", "seconds"])
@pytest.mark.parametrize("value", [0, -5])
def test_a_limit_that_allows_nothing_is_refused(name, value):
    with pytest.raises(
        DpflError, match=rf"budget\.{name} must be above 0, not {value}; leave it out for no limit"
    ):
        Budget(epsilon=1.0, **{name: value})


def test_a_run_without_an_end_is_refused():
    with pytest.raises(DpflError, match="A run needs an end"):
        Budget()


@pytest.mark.parametrize(
    "options", [{"epsilon": 2.0}, {"rounds": 1}, {"bytes": 10}, {"seconds": 0.5}]
)
def test_any_one_end_is_enough(options):
    budget = Budget(**options)
    assert budget.delta == 1e-5
    assert {
        name: value for name, value in vars(budget).items() if value is not None and name != "delta"
    } == options
