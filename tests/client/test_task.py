"""What a task costs its client, and how far one sample moves its update."""

import math
from dataclasses import replace

import pytest

from dpfl.client.descent.optimisers import SGD, Adam
from dpfl.client.task import ClientTask, LocalTraining, SecureSumTerms, sample_sensitivity
from dpfl.errors import DpflError
from dpfl.privacy import All, Flat, Gaussian, Poisson, Release
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares

LOCAL = LocalTraining(SGD(0.5))
SAMPLES = Release(Poisson(0.25), Flat(2.0), Gaussian(1.0))
STEPS = ClientTask(0, 1, 3, LOCAL, Release(), SAMPLES)
SUM = Release(Poisson(0.5), Flat(1.0), Gaussian(4.0))


def test_every_step_is_paid_for_and_a_noisy_slope_as_one_more() -> None:
    event = SAMPLES.event(30)
    assert STEPS.cost(30) == (event, 3)
    assert replace(STEPS, slope=True).cost(30) == (event, 4)


def test_raw_values_beside_a_release_leave_no_guarantee() -> None:
    assert replace(STEPS, raw=True).cost(30) == (gaussian(0.0), 3)
    assert replace(STEPS, raw=True, steps=0).cost(30) is None, "its ledger must hold such an event"


def test_the_sum_of_a_round_is_paid_for_by_its_clients_only_in_a_secure_sum() -> None:
    at_server = replace(STEPS, samples=None, clients=SUM)
    assert at_server.cost(30) is None
    shares = replace(at_server, clients=replace(SUM, noise_shares=NoiseShares(8, 2)))
    assert shares.cost(30) is None
    terms = SecureSumTerms(1.0, 10.0, 8)
    assert replace(shares, secure_sum=terms).cost(30) == (shares.clients.event(8), 1)


def test_one_sample_moves_an_update_of_linear_steps_by_a_known_bound() -> None:
    """2 eta C (steps - 1 + share): with all samples in each step, the share of one is 1."""
    whole = Release(All(), Flat(2.0))
    assert sample_sensitivity(LOCAL, whole, 3) == pytest.approx(
        2 * 0.5 * 2.0 * (2 + whole.sampling.max_share)
    )
    for local, samples in (
        (LOCAL, None),
        (LocalTraining(Adam(0.5)), whole),
        (replace(LOCAL, prox=0.1), whole),
        (LOCAL, replace(whole, divide_by_drawn=True)),
    ):
        assert sample_sensitivity(local, samples, 3) == math.inf


@pytest.mark.parametrize("weight", [-0.1, 1.1, math.nan])
def test_a_client_counts_in_a_secure_sum_by_0_to_1(weight: float) -> None:
    with pytest.raises(DpflError, match="must be between 0 and 1, not"):
        SecureSumTerms(weight, 1.0, 3)
