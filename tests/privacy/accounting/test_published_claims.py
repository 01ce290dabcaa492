"""Formulas of the papers to their printed digits, and what an accountant makes of the same
noise.
"""

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
    amplified,
    gaussian_releases_epsilon,
    haar_claimed_multiplier,
    haar_sigma,
)
from dpfl.privacy.mechanisms.haar import whole_vector
from tests.privacy.exact import epsilon_of_pair, grid, mixture, one_fixed_size_step

DELTA = 1e-5


def hellinger(steps, batch_size, epsilon=1.0, samples=600, **options):
    return HellingerNoise(epsilon, DELTA, steps, batch_size, samples, **options)


@pytest.mark.parametrize(
    ("mu", "expected"), [(1, 4.377178), (2, 9.997256), (math.sqrt(8), 15.456156), (8, 65.319220)]
)
def test_epsilon_of_a_gaussian(mu, expected):
    assert gaussian_releases_epsilon(1 / mu, DELTA) == pytest.approx(expected, abs=5e-7)


def test_gaussians_compose_to_one():
    assert gaussian_releases_epsilon(2.0, DELTA, 4) == pytest.approx(
        gaussian_releases_epsilon(1.0, DELTA)
    )


@pytest.mark.parametrize(
    ("steps", "batch_size", "spent"), [(1, 10, 49.4), (1, 50, 3.16), (10, 10, 1.04)]
)
def test_what_theorem_1_spends_in_one_round_at_a_claim_of_1(steps, batch_size, spent):
    noise = hellinger(steps, batch_size)
    assert noise.proven_epsilon() == pytest.approx(
        spent, abs=0.5 * 10 ** -len(str(spent).partition(".")[2])
    )
    assert noise.proven_epsilon() > noise.epsilon
    assert len(noise.objections()) == 1


def test_the_noise_is_equation_12():
    noise = hellinger(10, 10, epsilon=0.2, rate=0.05, norm=2.0)
    gamma, rate, steps, norm = 100 / 600, 0.05, 10, 2.0
    expected = (
        32 * gamma**2 * rate**2 * steps**2 * norm**2 * math.log(1.25 * gamma / DELTA) / 0.2**2
    )
    assert noise.stddev**2 == pytest.approx(expected)
    assert noise.sensitivity == 2 * rate * steps * norm
    assert noise.noise_multiplier == pytest.approx(noise.stddev / noise.sensitivity)


@given(steps=st.integers(1, 60), batch_size=st.integers(1, 10), share=st.floats(0.01, 0.999))
def test_theorem_1_holds_where_nothing_speaks_against_it(steps, batch_size, share):
    gamma = steps * batch_size / 600
    noise = hellinger(steps, batch_size, epsilon=share * 2 * gamma)
    assert noise.objections() == ()
    assert noise.proven_epsilon() <= noise.epsilon


def test_conditions_that_fail_are_named():
    assert hellinger(10, 10, epsilon=0.3).objections() == ()
    assert "2 gamma" in hellinger(10, 10, epsilon=0.4).objections()[0]
    assert "above 1" in hellinger(50, 50, epsilon=0.4).objections()[0]
    assert hellinger(50, 12, epsilon=0.4).objections() == ()


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
    assert noise.proven_epsilon() == pytest.approx(
        epsilon_of_pair(with_it, without, dx, DELTA), abs=1e-6
    )


def test_a_round_over_all_records_is_a_plain_gaussian():
    noise = hellinger(60, 10)
    assert noise.gamma == 1
    assert noise.proven_epsilon() == gaussian_releases_epsilon(noise.noise_multiplier, DELTA)
    assert noise.proven_epsilon(9) == pytest.approx(
        gaussian_releases_epsilon(noise.noise_multiplier / 3, DELTA)
    )
    assert hellinger(50, 50).proven_epsilon() == gaussian_releases_epsilon(
        hellinger(50, 50).noise_multiplier, DELTA
    )


def test_a_round_draws_its_records_without_replacement():
    noise = hellinger(10, 10)
    assert noise.event() == dp.SampledWithoutReplacementDpEvent(
        600, 100, dp.GaussianDpEvent(noise.noise_multiplier)
    )


def test_several_rounds_are_left_to_the_accountant():
    noise = hellinger(10, 10)
    assert noise.proven_epsilon(5) == accountant("rdp").epsilon({noise.event(): 5}, DELTA)
    assert noise.proven_epsilon(1) < noise.proven_epsilon(2) < noise.proven_epsilon(5)


def test_drawing_most_records_costs_no_more_than_using_all():
    noise = hellinger(50, 10)
    assert accountant("rdp").epsilon({noise.event(): 100}, DELTA) > noise.proven_epsilon(100)
    assert noise.proven_epsilon(100) == gaussian_releases_epsilon(
        noise.noise_multiplier, DELTA, 100
    )


def test_a_share_smaller_than_delta_is_free():
    assert HellingerNoise(1.0, 0.01, 1, 1, 101).proven_epsilon() == 0


def test_theorem_2_and_the_term_that_it_drops():
    noise, rounds = hellinger(10, 10), 100
    log = math.log(1.25 / 6 / DELTA)
    assert noise.claimed(rounds) == pytest.approx(
        math.sqrt(rounds * math.log(1 / DELTA) / (2 * log))
    )
    total = noise.completed(rounds)
    assert -rounds / (8 * log) + 2 * log * total**2 / rounds == pytest.approx(
        math.log(1 / DELTA)
    )  # (22), for epsilon = 1
    assert noise.claimed(rounds) < total < noise.proven_epsilon(rounds)


def test_theorem_2_claims_less_for_one_round_than_theorem_1():
    assert hellinger(10, 10).claimed(1) < 1


@pytest.mark.parametrize("rate", [0.01, 0.5, 1.0])
def test_amplification_by_sampling(rate):
    assert amplified(1.5, rate) == pytest.approx(math.log(1 + rate * (math.exp(1.5) - 1)))
    assert amplified(5000.0, rate) == pytest.approx(5000 + math.log(rate))


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


def test_nbafl_noise_is_as_printed():
    noise, c = nbafl(exposures=2), math.sqrt(2 * math.log(1.25 / 0.01))
    assert noise.uplink == pytest.approx(c * 2 * 2 * 20 / (512 * 60))
    assert noise.downlink == pytest.approx(
        2 * c * 20 * math.sqrt(25**2 - 2**2 * 50) / (512 * 50 * 60)
    )


@pytest.mark.parametrize(("rounds", "some"), [(7, False), (8, True)])
def test_nbafl_needs_no_noise_on_the_way_down_up_to_l_sqrt_n_rounds(rounds, some):
    assert (nbafl(rounds=rounds).downlink > 0) == some


def test_nbafl_noise_on_the_way_down_fills_up_what_the_clients_added():
    """N uploads' noise in the mean, and the server's, are together what T releases of a mean over N
    clients need.
    """
    noise = nbafl()
    needed = (
        math.sqrt(2 * math.log(125))
        * noise.rounds
        * 2
        * noise.clip
        / (noise.smallest * noise.clients * noise.epsilon)
    )
    assert math.hypot(noise.uplink / math.sqrt(noise.clients), noise.downlink) == pytest.approx(
        needed
    )


def test_nbafl_is_within_its_claim_only_for_a_mean_over_records():
    noise = nbafl(epsilon=0.9, exposures=3)
    assert noise.proven_epsilon(2 * noise.clip / noise.smallest) < noise.epsilon
    assert noise.proven_epsilon() > 100 * noise.epsilon
    assert noise.proven_epsilon() == pytest.approx(
        gaussian_releases_epsilon(noise.uplink / 40 / math.sqrt(3), 0.01)
    )


def test_the_wavelet_claim_and_the_truth():
    """Lemma 2 for m = 8: noise of 1 is said to be worth 1.58, and is worth 1/8."""
    assert haar_claimed_multiplier(1.0, 8) == pytest.approx(math.sqrt(2.5))
    layers = whole_vector(8)
    assert layers.effective_multiplier(1.0, layers.weights("paper"), "coefficients") == 1 / 8
    assert haar_sigma(1.0, 1) == 1


@given(multiplier=st.floats(0.01, 100), level=st.integers(0, 30))
def test_the_two_wavelet_formulas_are_inverse(multiplier, level):
    assert haar_claimed_multiplier(haar_sigma(multiplier, 2**level), 2**level) == pytest.approx(
        multiplier
    )
    assert haar_sigma(multiplier, 2**level) <= multiplier


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: hellinger(0, 10),
        lambda: hellinger(1, 10, epsilon=0.0),
        lambda: hellinger(1, 10, norm=-1.0),
        lambda: HellingerNoise(1.0, 0.5, 1, 1, 600),
        lambda: HellingerNoise(1.0, 1.0, 1, 1, 600),
        lambda: nbafl(epsilon=-1.0),
        lambda: nbafl(delta=0.0),
        lambda: nbafl(smallest=0),
        lambda: nbafl().proven_epsilon(0.0),
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


def test_a_pair_that_differs_in_one_drawn_record_never_costs_more_than_said():
    """Replacing a record by its opposite, whose difference is the sensitivity: half a sensitivity
    either way.
    """
    noise = hellinger(10, 10)
    assert (
        one_fixed_size_step(noise.gamma, 2 * noise.noise_multiplier, DELTA)
        <= noise.proven_epsilon()
    )
    assert np.isfinite(noise.proven_epsilon(50))
