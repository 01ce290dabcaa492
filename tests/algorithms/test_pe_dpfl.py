"""PE-DPFL states what LDP-FL states, plans its noise and resumes."""

from __future__ import annotations

import dp_accounting as dp
import pytest

from dpfl.algorithms import (
    ldp_fl,
    pe_dpfl,
)
from dpfl.data import Federation
from tests.algorithms.checks import Train
from tests.conftest import StopsAfter, ledger_of


def test_pe_dpfl_states_what_ldp_fl_states(train: Train, crowd: Federation) -> None:
    options = {"noise_multiplier": 0.02, "clip": 1.0, "tau": 8}
    perturbed = train(crowd, pe_dpfl(**options), rounds=6, accountant="rdp")
    plain = train(crowd, ldp_fl(**options), rounds=6, accountant="rdp", out="plain")
    assert perturbed.accuracy > 0.3
    assert perturbed.model_sha256 != plain.model_sha256
    assert ledger_of(perturbed, "client-00003") == {dp.GaussianDpEvent(0.02): 6}
    assert perturbed.privacy.to_dict() == plain.privacy.to_dict()


def test_pe_dpfl_plans_noise_that_stays_inside_epsilon_and_resumes(
    train: Train, federation: Federation
) -> None:
    result = train(federation, pe_dpfl(), epsilon=3.0, rounds=3, accountant="rdp")
    assert result.rounds == 3
    assert 2.9 < result.privacy.proven <= 3.0
    with pytest.raises(KeyboardInterrupt):
        train(
            federation,
            pe_dpfl(),
            epsilon=3.0,
            rounds=3,
            accountant="rdp",
            out="broken",
            progress=StopsAfter(1),
        )
    resumed = train(
        federation, pe_dpfl(), epsilon=3.0, rounds=3, accountant="rdp", out="broken", resume=True
    )
    assert (resumed.model_sha256, resumed.privacy.proven) == (
        result.model_sha256,
        result.privacy.proven,
    )
