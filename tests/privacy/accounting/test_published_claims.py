"""Formulas of the papers to their printed digits, and what an accountant makes of the same
noise.
"""

import math

import pytest

from dpfl.errors import DpflError
from dpfl.privacy.accounting.published_claims import (
    HellingerNoise,
    TwoWayNoise,
    gaussian_releases_epsilon,
)

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


def test_the_noise_is_equation_12():
    noise = hellinger(10, 10, epsilon=0.2, rate=0.05, norm=2.0)
    gamma, rate, steps, norm = 100 / 600, 0.05, 10, 2.0
    expected = (
        32 * gamma**2 * rate**2 * steps**2 * norm**2 * math.log(1.25 * gamma / DELTA) / 0.2**2
    )
    assert noise.stddev**2 == pytest.approx(expected)
    assert noise.sensitivity == 2 * rate * steps * norm
    assert noise.noise_multiplier == pytest.approx(noise.stddev / noise.sensitivity)


def test_theorem_2_claims_less_for_one_round_than_theorem_1():
    assert hellinger(10, 10).claimed(1) < 1


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
    ],
)
def test_bad_input_is_one_clear_sentence(wrong):
    with pytest.raises(DpflError) as error:
        wrong()
    assert str(error.value).endswith(".")
