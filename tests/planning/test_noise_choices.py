"""A question that makes no sense is refused; the limit theorem is exact without sampling."""

from __future__ import annotations

import pytest

from dpfl.errors import DpflError
from dpfl.planning.noise_choices import (
    ENOUGH_STEPS,
    NoiseChoice,
    PlanningQuestion,
    in_the_limit,
    sketch_choices,
)
from dpfl.privacy import Poisson, accountant

DELTA = 1e-5


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"rounds": 0}, "rounds"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"accountant": "gdp-clt"}, "approximation"),
        ({"sizes": (10, 0)}, "at least 1 sample"),
        ({"samples_per_round": 10.0}, "sizes"),
        ({"sizes": (10,), "samples_per_round": 0.0}, "above 0"),
        ({"parameters": 0}, "parameter"),
        ({"seconds_per_round": 1.0}, "go together"),
        ({"samples_per_second": 1.0}, "go together"),
        ({"sizes": (10,), "seconds_per_round": 1.0, "samples_per_second": -1.0}, "above 0"),
        ({"seconds_per_round": 1.0, "samples_per_second": 5.0}, "sizes"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(options, word):
    with pytest.raises(DpflError, match=word):
        PlanningQuestion(**({"epsilon": 2.0, "rounds": 10} | options))


def test_the_limit_theorem_is_exact_for_everyone_in_every_step() -> None:
    """At q = 1 a run of T steps is one Gaussian release with mu = sqrt(T) / z."""
    assert in_the_limit(2.0, 1.0, 100) == pytest.approx(5.0)
    (choice,) = sketch_choices(PlanningQuestion(2.0, 100), (1.0,), (1,))
    event = Poisson(1.0).event(choice.noise_multiplier, 1)
    assert accountant("pld").epsilon({event: 100}, DELTA) == pytest.approx(2.0, rel=1e-3)


def test_total_noise_counts_few_steps_as_worse() -> None:
    many, few = NoiseChoice(0.1, 1, 2.0, 400), NoiseChoice(0.1, 1, 2.0, 25)
    assert many.per_step == few.per_step == 20.0
    assert (many.total, many.score) == (1.0, 1.0)
    assert (few.total, few.score) == (4.0, 4.0 * ENOUGH_STEPS / 25)
    assert few.samples(300) == 30.0
