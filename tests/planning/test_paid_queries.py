"""Queries that clients are paid for: their noise from a share of epsilon, and what is refused."""

from __future__ import annotations

import pytest

from dpfl.errors import DpflError
from dpfl.planning.paid_queries import USUAL_METRIC_NOISE, PrivateMetric, noise_of_share
from dpfl.privacy import Budget, accountant
from dpfl.privacy.accounting.events import gaussian
from dpfl.tasks import MultiClass

BUDGET = Budget(epsilon=2.0, rounds=10)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"noise": 1.0, "share": 0.1}, "one of them"),
        ({"share": 1.0}, "between 0 and 1"),
        ({"held_out": 1.0}, "held_out"),
        ({"most": 0.0}, "most"),
    ],
)
def test_a_metric_that_makes_no_sense_is_refused(options: dict[str, float], word: str) -> None:
    with pytest.raises(DpflError, match=word):
        PrivateMetric(**options)


def test_the_noise_of_a_share_costs_that_share_by_itself() -> None:
    noise = noise_of_share(0.25, BUDGET, None, "metrics")
    cost = accountant("pld").epsilon({gaussian(noise): 1}, BUDGET.delta)
    assert cost == pytest.approx(0.5, rel=1e-3)
    assert cost <= 0.5
    with pytest.raises(DpflError, match=r"metrics\.share"):
        noise_of_share(0.25, Budget(rounds=10), None, "metrics")


def test_a_metric_becomes_a_query_with_its_noise() -> None:
    usual = PrivateMetric().query(MultiClass(10), BUDGET, None)
    assert usual.noise_multiplier == USUAL_METRIC_NOISE
    assert PrivateMetric(noise=3.0).query(MultiClass(10), BUDGET, None).noise_multiplier == 3.0
