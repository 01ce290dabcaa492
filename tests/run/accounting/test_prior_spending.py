"""Noise is planned beside what other runs spent."""

from __future__ import annotations

import pytest

from dpfl.algorithms import fedavg_dp
from tests.run.hospitals import STEPS


def test_a_second_run_plans_its_noise_for_what_is_left_and_makes_all_of_its_rounds(
    train, federation, tmp_path
) -> None:
    """Fault: it planned as if ledgers were empty, and stopped at round 71 of 100 without a word."""
    planned, options = (
        fedavg_dp(sampling_rate=0.05),
        {"epsilon": 3.0, "ledger": tmp_path / "ledgers"},
    )
    first = train(
        federation, fedavg_dp(sampling_rate=0.05, noise_multiplier=1.0), rounds=3, **options
    )
    second = train(federation, planned, out="second", rounds=8, **options)
    assert (second.rounds, second.stopped_by) == (8, "rounds")
    assert first.privacy.proven < second.privacy.proven <= 3.0
    assert any(
        "has spent epsilon" in note and "noise is planned for what that leaves" in note
        for note in second.notes
    )
    third = train(
        federation,
        fedavg_dp(sampling_rate=0.05, noise_multiplier=8.0),
        out="third",
        rounds=1,
        epsilon=4.0,
        ledger=tmp_path / "ledgers",
    )
    assert any("may end by epsilon" in note for note in third.notes)


def test_a_run_whose_ledgers_others_used_meanwhile_resumes_with_the_noise_that_it_had(
    train, federation, tmp_path
) -> None:
    from tests.conftest import StopsAfter

    planned, options = (
        fedavg_dp(sampling_rate=0.05),
        {"epsilon": 3.0, "ledger": tmp_path / "ledgers"},
    )
    train(federation, STEPS, out="first", rounds=1, **options)
    with pytest.raises(KeyboardInterrupt):
        train(federation, planned, rounds=3, progress=StopsAfter(1), **options)
    train(
        federation,
        fedavg_dp(sampling_rate=0.05, noise_multiplier=9.0),
        out="other",
        rounds=1,
        **options,
    )
    result = train(federation, planned, rounds=3, resume=True, **options)
    assert result.privacy.proven <= 3.0
