"""Dynamic DP-SGD: a decay that is planned, accounted for and kept inside epsilon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpfl.algorithms import dyn_dp_sgd
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.privacy import accountant
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.server.aggregation.weights import HellingerWeights
from tests.algorithms.checks import Train, assert_same_on_workers_and_resumed
from tests.conftest import ledger_of


def test_it_learns_inside_epsilon_and_is_the_same_on_workers_and_resumed(
    train: Train, federation: Federation
) -> None:
    algorithm = dyn_dp_sgd(tau=2, sampling_rate=0.3, rate=1.0, phases=3)
    assert_same_on_workers_and_resumed(train, federation, algorithm, epsilon=12.0)


def test_a_schedule_spends_epsilon_and_its_ledger_holds_every_kind_of_event(
    train: Train, federation: Federation
) -> None:
    result = train(
        federation, dyn_dp_sgd(tau=2, sampling_rate=0.3, rate=1.0, phases=3), epsilon=8.0, rounds=6
    )
    assert 7.9 < result.privacy.proven <= 8.0
    events = ledger_of(result, "client-00001")
    assert sorted(events.values()) == [4, 4, 4]
    assert result.privacy.proven == pytest.approx(accountant("pld").epsilon(events, 1e-5))
    assert result.privacy.claimed == pytest.approx(accountant("gdp-clt").epsilon(events, 1e-5))
    running_total = [row.epsilon for row in result.history]
    assert running_total == sorted(running_total)
    assert [row.clip for row in result.history] == pytest.approx(
        [1.5 * 0.3 ** (round / 6) for round in range(6)]
    )


def test_a_schedule_with_given_noise_stops_inside_epsilon(
    train: Train, federation: Federation
) -> None:
    algorithm = dyn_dp_sgd(sampling_rate=0.3, noise_multiplier=1.2, phases=3)
    result = train(federation, algorithm, epsilon=4.0, rounds=12, accountant="rdp")
    assert result.stopped_by == "epsilon"
    assert result.rounds < 12
    assert result.privacy.proven <= 4.0


def test_a_published_schedule_claims_what_it_planned_and_proves_more(
    train: Train, federation: Federation
) -> None:
    result = train(
        federation, dyn_dp_sgd("published", sampling_rate=0.05, phases=3), epsilon=2.0, rounds=6
    )
    assert result.privacy.claimed == pytest.approx(2.0, abs=0.01)
    assert result.privacy.proven > 1.3 * result.privacy.claimed


def test_a_schedule_needs_its_rounds(train: Train, federation: Federation) -> None:
    with pytest.raises(DpflError, match=r"give budget\.rounds"):
        train(federation, dyn_dp_sgd(noise_multiplier=1.0), epsilon=2.0)


def test_a_second_run_on_the_same_ledgers_has_what_the_first_left(
    train: Train, federation: Federation, tmp_path: Any
) -> None:
    algorithm = dyn_dp_sgd(sampling_rate=0.3, noise_multiplier=1.8, phases=2)
    first = train(
        federation, algorithm, epsilon=4.0, rounds=4, accountant="rdp", ledger=tmp_path / "mine"
    )
    second = train(
        federation,
        algorithm,
        epsilon=4.0,
        rounds=12,
        accountant="rdp",
        ledger=tmp_path / "mine",
        out="second",
    )
    assert first.rounds == 4
    assert 0 < second.rounds < 12
    assert second.privacy.proven <= 4.0


def test_what_is_asked_before_the_first_round_is_left_room_for(
    train: Train, federation: Federation
) -> None:
    algorithm = dyn_dp_sgd(sampling_rate=0.3, noise_multiplier=1.2, phases=3)
    with_query = replace(algorithm, weights=HellingerWeights("similarity", LabelQuery(2.0)))
    alone = train(federation, algorithm, epsilon=4.0, rounds=12, accountant="rdp")
    both = train(federation, with_query, epsilon=4.0, rounds=12, accountant="rdp", out="both")
    assert 0 < both.rounds < alone.rounds
    assert both.privacy.proven <= 4.0
    assert not both.lost_replies
