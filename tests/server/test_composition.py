"""Whom the noise of an algorithm protects, who pays for it, and what it costs."""

import pytest

from dpfl.algorithms import (
    Algorithm,
    dp_fedavg,
    dp_ftrl,
    dyn_dp_sgd,
    fedavg,
    fedavg_dp,
    moon,
    nbafl,
    scaffold,
)
from dpfl.client.noise_placement import NoisePlacement
from dpfl.server.client_state import ControlVariates, LastModels

STEPS = fedavg_dp(tau=3, noise_multiplier=1.0)
SUM = dp_fedavg(noise_multiplier=1.0)


@pytest.mark.parametrize(
    ("algorithm", "placement", "unit", "client_pays", "trusts"),
    [
        (STEPS, NoisePlacement.EVERY_STEP, "sample", True, False),
        (nbafl(noise_multiplier=1.0), NoisePlacement.CLIENT_UPDATE, "client", True, False),
        (SUM, NoisePlacement.ROUND_SUM, "client", False, True),
        (fedavg(), NoisePlacement.NONE, "none", False, False),
    ],
    ids=["steps", "uploads", "sum", "none"],
)
def test_unit_payer_and_trust_follow_from_the_place_of_the_noise(
    algorithm: Algorithm, placement: NoisePlacement, unit: str, client_pays: bool, trusts: bool
) -> None:
    assert algorithm.placement is placement
    assert algorithm.unit == unit
    assert algorithm.ledger_per_client == client_pays
    assert algorithm.trusts_server == trusts


def test_releases_are_counted_per_step_per_round_or_once() -> None:
    assert (STEPS.releases_in(5), SUM.releases_in(5)) == (15, 5)
    assert (STEPS.releases_made(5, 11), SUM.releases_made(5, 11)) == (11, 5)
    whole = dp_ftrl(noise_multiplier=1.0).for_rounds(5, 20)
    assert [whole.releases_in(rounds) for rounds in (0, 1, 5)] == [0, 1, 1]


def test_a_schedule_is_counted_round_by_round() -> None:
    algorithm = dyn_dp_sgd(noise_multiplier=1.0, tau=3).for_rounds(16, 4)
    counts = algorithm.spending(3 * 4 + 1, 1000)
    assert sum(counts.values()) == 13
    assert counts == algorithm.stated_spending(13, 1000)
    first = algorithm.schedule.least(algorithm.release, 0).event(1000)
    assert counts[first] == 6, "two rounds have the noise of the first phase"


def test_releases_of_one_kind_are_one_event() -> None:
    assert STEPS.spending(7, 1000) == {STEPS.event(1000): 7}
    assert STEPS.query_spending == {}


def test_the_server_keeps_controls_or_last_models_where_an_algorithm_needs_them() -> None:
    assert isinstance(scaffold().client_state, ControlVariates)
    assert isinstance(moon().client_state, LastModels)
    assert STEPS.client_state is None
