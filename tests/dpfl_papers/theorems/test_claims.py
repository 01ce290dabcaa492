"""What the noise of the papers is worth by a proof, beside what they claim."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy import accountant
from dpfl.privacy.accounting.published_claims import (
    HellingerNoise,
    TwoWayNoise,
    gaussian_releases_epsilon,
)
from dpfl.privacy.mechanisms.noises.haar import Haar
from dpfl_papers.theorems.claims import (
    amplify,
    haar_claimed_multiplier,
    haar_sigma,
    hellinger_completed_claim,
    hellinger_event,
    hellinger_objections,
    hellinger_proven_epsilon,
    two_way_proven_epsilon,
)
from tests.privacy.exact import epsilon_of_pair, grid, mixture, one_fixed_size_step

DELTA = 1e-5


def hellinger(steps, batch_size, epsilon=1.0, samples=600, **options):
    return HellingerNoise(epsilon, DELTA, steps, batch_size, samples, **options)


def nbafl(**changes):
    values = {
        "epsilon": 60.0,
        "delta": 0.01,
        "clip": 20.0,
        "smallest": 512,
        "exposures": 1,
        "rounds": 25,
        "clients": 50,
    }
    return TwoWayNoise(**{**values, **changes})


@pytest.mark.parametrize(
    ("steps", "batch_size", "spent"), [(1, 10, 49.4), (1, 50, 3.16), (10, 10, 1.04)]
)
def test_what_theorem_1_spends_in_one_round_at_a_claim_of_1(steps, batch_size, spent):
    noise = hellinger(steps, batch_size)
    assert hellinger_proven_epsilon(noise) == pytest.approx(
        spent, abs=0.5 * 10 ** -len(str(spent).partition(".")[2])
    )
    assert hellinger_proven_epsilon(noise) > noise.epsilon
    assert len(hellinger_objections(noise)) == 1


@given(steps=st.integers(1, 60), batch_size=st.integers(1, 10), share=st.floats(0.01, 0.999))
def test_theorem_1_holds_where_nothing_speaks_against_it(steps, batch_size, share):
    gamma = steps * batch_size / 600
    noise = hellinger(steps, batch_size, epsilon=share * 2 * gamma)
    assert hellinger_objections(noise) == ()
    assert hellinger_proven_epsilon(noise) <= noise.epsilon


def test_conditions_that_fail_are_named():
    assert hellinger_objections(hellinger(10, 10, epsilon=0.3)) == ()
    assert "2 gamma" in hellinger_objections(hellinger(10, 10, epsilon=0.4))[0]
    assert "above 1" in hellinger_objections(hellinger(50, 50, epsilon=0.4))[0]
    assert hellinger_objections(hellinger(50, 12, epsilon=0.4)) == ()


def test_one_round_is_the_exact_loss_of_its_worst_pair():
    """A record that is drawn moves the mean by the sensitivity, or it is not drawn; both ways
    round.
    """
    noise = hellinger(1, 50)
    x, dx = grid(noise.noise_multiplier)
    with_it, without = (
        mixture(x, noise.noise_multiplier, noise.gamma, 1.0),
        mixture(x, noise.noise_multiplier, 0.0, 0.0),
    )
    assert hellinger_proven_epsilon(noise) == pytest.approx(
        epsilon_of_pair(with_it, without, dx, DELTA), abs=1e-6
    )


def test_a_round_over_all_records_is_a_plain_gaussian():
    noise = hellinger(60, 10)
    assert noise.gamma == 1
    assert hellinger_proven_epsilon(noise) == gaussian_releases_epsilon(
        noise.noise_multiplier, DELTA
    )
    assert hellinger_proven_epsilon(noise, 9) == pytest.approx(
        gaussian_releases_epsilon(noise.noise_multiplier / 3, DELTA)
    )
    assert hellinger_proven_epsilon(hellinger(50, 50)) == gaussian_releases_epsilon(
        hellinger(50, 50).noise_multiplier, DELTA
    )


def test_a_round_draws_its_records_without_replacement():
    noise = hellinger(10, 10)
    assert hellinger_event(noise) == dp.SampledWithoutReplacementDpEvent(
        600, 100, dp.GaussianDpEvent(noise.noise_multiplier)
    )


def test_several_rounds_are_left_to_the_accountant():
    noise = hellinger(10, 10)
    assert hellinger_proven_epsilon(noise, 5) == accountant("rdp").epsilon(
        {hellinger_event(noise): 5}, DELTA
    )
    assert (
        hellinger_proven_epsilon(noise, 1)
        < hellinger_proven_epsilon(noise, 2)
        < hellinger_proven_epsilon(noise, 5)
    )


def test_drawing_most_records_costs_no_more_than_using_all():
    noise = hellinger(50, 10)
    assert accountant("rdp").epsilon(
        {hellinger_event(noise): 100}, DELTA
    ) > hellinger_proven_epsilon(noise, 100)
    assert hellinger_proven_epsilon(noise, 100) == gaussian_releases_epsilon(
        noise.noise_multiplier, DELTA, 100
    )


def test_a_share_smaller_than_delta_is_free():
    assert hellinger_proven_epsilon(HellingerNoise(1.0, 0.01, 1, 1, 101)) == 0


def test_theorem_2_and_the_term_that_it_drops():
    noise, rounds = hellinger(10, 10), 100
    log = math.log(1.25 / 6 / DELTA)
    assert noise.claimed(rounds) == pytest.approx(
        math.sqrt(rounds * math.log(1 / DELTA) / (2 * log))
    )
    total = hellinger_completed_claim(noise, rounds)
    assert -rounds / (8 * log) + 2 * log * total**2 / rounds == pytest.approx(
        math.log(1 / DELTA)
    )  # (22), for epsilon = 1
    assert noise.claimed(rounds) < total < hellinger_proven_epsilon(noise, rounds)


@pytest.mark.parametrize("rate", [0.01, 0.5, 1.0])
def test_amplification_by_sampling(rate):
    assert amplify(1.5, rate) == pytest.approx(math.log(1 + rate * (math.exp(1.5) - 1)))
    assert amplify(5000.0, rate) == pytest.approx(5000 + math.log(rate))


def test_nbafl_is_within_its_claim_only_for_a_mean_over_records():
    noise = nbafl(epsilon=0.9, exposures=3)
    assert two_way_proven_epsilon(noise, 2 * noise.clip / noise.smallest) < noise.epsilon
    assert two_way_proven_epsilon(noise) > 100 * noise.epsilon
    assert two_way_proven_epsilon(noise) == pytest.approx(
        gaussian_releases_epsilon(noise.uplink / 40 / math.sqrt(3), 0.01)
    )


def test_the_wavelet_claim_and_the_truth():
    """Lemma 2 for m = 8: noise of 1 is said to be worth 1.58, and is worth 1/8."""
    assert haar_claimed_multiplier(1.0, 8) == pytest.approx(math.sqrt(2.5))
    layers = Haar((8,))
    assert layers.effective_multiplier(1.0, layers.weights("paper"), "coefficients") == 1 / 8
    assert haar_sigma(1.0, 1) == 1


@given(multiplier=st.floats(0.01, 100), level=st.integers(0, 30))
def test_the_two_wavelet_formulas_are_inverse(multiplier, level):
    assert haar_claimed_multiplier(haar_sigma(multiplier, 2**level), 2**level) == pytest.approx(
        multiplier
    )
    assert haar_sigma(multiplier, 2**level) <= multiplier


def test_a_pair_that_differs_in_one_drawn_record_never_costs_more_than_said():
    """Replacing a record by its opposite, whose difference is the sensitivity: half a sensitivity
    either way.
    """
    noise = hellinger(10, 10)
    assert one_fixed_size_step(
        noise.gamma, 2 * noise.noise_multiplier, DELTA
    ) <= hellinger_proven_epsilon(noise)
    assert np.isfinite(hellinger_proven_epsilon(noise, 50))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: two_way_proven_epsilon(nbafl(), 0.0),
        lambda: haar_sigma(1.0, 6),
        lambda: haar_sigma(0.0, 8),
        lambda: haar_claimed_multiplier(math.nan, 8),
        lambda: haar_claimed_multiplier(1.0, 0),
    ],
)
def test_bad_input_is_one_clear_sentence(wrong):
    with pytest.raises(DpflError) as error:
        wrong()
    assert str(error.value).endswith(".")
