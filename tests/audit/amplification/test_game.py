"""The amplification game at real nodes."""

from dataclasses import replace
from functools import partial

import pytest

from dpfl.algorithms import fedavg_dp
from dpfl.audit.amplification import game
from dpfl.audit.amplification.amplifiers import linear
from dpfl.audit.amplification.search import furthest_movement
from dpfl.audit.checks.noise_check import plain
from dpfl.audit.checks.sensitivity_check import ROUNDING
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.engines import one_thread
from dpfl.server.steps.policy import FixedSteps


@pytest.mark.parametrize("unit", ["sample", "person"])
def test_one_unit_moves_what_a_node_releases_by_its_own_gradient(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(game, "TRIES", 3)
    monkeypatch.setattr(game, "furthest_movement", partial(furthest_movement, sizes=(3,)))
    algorithm = replace(
        plain(fedavg_dp(noise_multiplier=1.0).for_unit(unit)),
        local=LocalTraining(SGD(game.RATE)),
        steps=FixedSteps(1),
    )
    with one_thread():
        share = game._share(algorithm, linear(13, 2), unit == "person", 0)
    assert 0.9 < share <= ROUNDING
