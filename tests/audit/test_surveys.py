"""What clients say beside their updates: bounds close to what is proven, and never above it."""

import pytest

from dpfl.algorithms import ali_dpfl
from dpfl.audit.bounds import epsilon_of
from dpfl.audit.surveys import one_answer, one_slope
from dpfl.privacy import Keyed, accountant
from dpfl.privacy.columns import ColumnSurvey
from dpfl.privacy.histogram import Survey
from dpfl.privacy.mean import MeanSurvey
from dpfl.privacy.surveys import AnySurvey


def test_a_noisy_histogram_stays_below_its_proof_and_shows_when_noise_is_small() -> None:
    assert one_answer(Survey(10.0), 1e-5, 600, 0.95, Keyed(0)).epsilon <= 0.3407
    little = one_answer(Survey(0.3), 1e-5, 600, 0.95, Keyed(0)).epsilon
    assert 2.0 < little <= epsilon_of(1 / 0.3, 1e-5)


def test_a_noisy_mean_stays_below_its_proof_and_shows_when_noise_is_small() -> None:
    assert one_answer(MeanSurvey(10.0), 1e-5, 600, 0.95, Keyed(0)).epsilon <= 0.3407
    assert one_answer(MeanSurvey(0.3), 1e-5, 600, 0.95, Keyed(0)).epsilon > 3


@pytest.mark.parametrize("survey", [Survey(10.0), MeanSurvey(20.0), ColumnSurvey(20.0, 3, (0, 2), ((1, 8),))])
def test_an_answer_with_much_noise_is_measured_to_a_few_percent(survey: AnySurvey) -> None:
    proven = epsilon_of(1 / (survey.multiplier or 1.0), 1e-5)
    measured = one_answer(survey, 1e-5, 600, 0.95, Keyed(0))
    assert 0.9 * proven < measured.epsilon <= proven


def test_a_slope_moves_as_far_as_its_noise_is_for() -> None:
    made = ali_dpfl(mu="paid", noise_multiplier=1.0)
    measured = one_slope(made, 1e-5, 200, 0.95, Keyed(0))
    assert measured.mu is not None
    assert 0.85 < measured.mu <= 1
    assert made.samples is not None
    assert measured.epsilon <= accountant("pld").epsilon({made.samples.event(1): 1}, 1e-5)
