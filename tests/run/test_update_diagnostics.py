"""The step of a round that is nearly all noise is as long as the noise is said to be."""

from __future__ import annotations

import pytest

import dpfl
from dpfl.run.metrics import read_lost, read_updates
from dpfl.run.records.folder import METRICS
from tests.conftest import StopsAfter


@pytest.mark.parametrize(
    "algorithm",
    [
        dpfl.algorithms.fedavg_dp(noise_multiplier=50.0, sampling_rate=0.2, tau=3),
        dpfl.algorithms.dp_fedavg(noise_multiplier=50.0),
        dpfl.algorithms.dp_fedavg(
            noise_multiplier=50.0, clipping="quantile", count_noise=60.0, server_momentum=0.5
        ),
        dpfl.algorithms.ldp_fl(noise_multiplier=50.0),
        dpfl.algorithms.ali_dpfl(
            variant="published", reading="code", most_tau=1, noise_multiplier=50.0
        ),
    ],
    ids=["steps", "round", "quantile and momentum", "uploads", "constant divisor"],
)
def test_noise_is_as_long_as_said(train, federation, algorithm):
    run = train(federation, algorithm, rounds=3)
    steps = read_updates(run.folder / METRICS)
    assert [(step.round, step.whose) for step in steps] == [(1, ""), (2, ""), (3, "")]
    for step in steps:
        assert step.norm == pytest.approx(step.noise, rel=0.03)
    assert steps[0].angle is None
    assert all(abs(step.angle - 90) < 5 or algorithm.server.momentum for step in steps[1:])


def test_a_resumed_run_has_the_same_steps(train, federation):
    system = dpfl.algorithms.fedavg_dp(noise_multiplier=2.0, sampling_rate=0.2)
    whole = train(federation, system, rounds=3, out="whole")
    with pytest.raises(KeyboardInterrupt):
        train(federation, system, rounds=3, progress=StopsAfter(2))
    again = train(federation, system, rounds=3, resume=True)
    assert read_updates(again.folder / METRICS) == read_updates(whole.folder / METRICS)


def test_who_was_refused_is_told_with_its_round(train, federation, tmp_path):
    """A ledger with a low limit of its own refuses, and the run goes on without it."""
    system = dpfl.algorithms.fedavg_dp(noise_multiplier=1.0, sampling_rate=0.5)
    train(federation, system, rounds=1, out="first", ledger=tmp_path / "ledgers")
    from dpfl.privacy import Ledger, Limit

    ledger = Ledger.existing(tmp_path / "ledgers" / "client-00002.sqlite")
    ledger.set_limit(Limit(ledger.epsilon(1e-5) + 0.1, 1e-5))
    ledger.close()
    run = train(federation, system, rounds=2, ledger=tmp_path / "ledgers")
    assert [row.clients for row in run.history] == [3, 3]
    assert read_lost(run.folder / METRICS) == list(run.lost_replies)
