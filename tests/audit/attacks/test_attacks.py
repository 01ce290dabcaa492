"""Membership inference on models that a system trains."""

import math

from dpfl.algorithms import fedavg_dp
from dpfl.audit.attacks.attacks import membership


def test_a_private_model_stays_below_the_ceiling() -> None:
    for found in membership(fedavg_dp(noise_multiplier=1.0), 1e-5):
        slack = 4 * math.sqrt(0.1 / found.members)
        assert found.rates[0.1] <= found.ceilings[0.1] + slack
