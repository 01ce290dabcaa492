"""LDP-FL: whole clients are protected, from their own ledgers."""

from __future__ import annotations

import dp_accounting as dp
import pytest

import dpfl
from dpfl.algorithms import ldp_fl
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.privacy import accountant
from tests.algorithms.checks import Train, assert_noise_of_upload, distance_moved, opposites
from tests.conftest import ledger_of


def test_ldp_fl_protects_whole_clients_from_their_own_ledgers(
    train: Train, crowd: Federation
) -> None:
    result = train(
        crowd, ldp_fl(noise_multiplier=0.02, clip=1.0, tau=8), rounds=6, accountant="rdp"
    )
    assert result.accuracy > 0.3
    statement = result.privacy
    assert statement.unit == "client"
    assert "the server" in statement.adversary
    assert len(statement.per_client) == 20
    assert ledger_of(result, "client-00003") == {dp.GaussianDpEvent(0.02): 6}
    assert statement.proven == pytest.approx(
        accountant("rdp").epsilon({dp.GaussianDpEvent(0.02): 6}, 1e-5)
    )


def test_clients_that_are_drawn_cannot_pay_themselves(train: Train) -> None:
    random_clients = dpfl.data.sample().split(clients=1000, how=dpfl.data.RandomClients(20), seed=0)
    with pytest.raises(DpflError, match="keep no ledgers"):
        train(random_clients, ldp_fl(noise_multiplier=1.0), rounds=1)


def test_ldp_fl_stops_when_its_clients_have_nothing_left(train: Train, crowd: Federation) -> None:
    result = train(crowd, ldp_fl(noise_multiplier=5.0), epsilon=2.0, rounds=50, accountant="rdp")
    assert result.stopped_by == "epsilon"
    assert result.privacy.proven <= 2.0
    event = dp.GaussianDpEvent(5.0)
    assert accountant("rdp").epsilon({event: result.rounds + 1}, 1e-5) > 2.0


def test_two_clients_of_ldp_fl_can_be_as_far_apart_as_stated_and_no_further() -> None:
    algorithm = ldp_fl(clip=0.3, tau=3, rate=1.0, noise_multiplier=1.0)
    distance = distance_moved(algorithm, opposites(1), steps=3)
    bound = algorithm.updates.sensitivity_bound
    assert 0.99 * bound < distance <= bound


def test_the_noise_of_an_upload_is_its_multiplier_times_how_far_a_unit_moves_it() -> None:
    assert_noise_of_upload(ldp_fl(clip=0.3, noise_multiplier=2.5))
