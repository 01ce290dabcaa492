"""Adap DP-FL (Fu et al. 2022): DP-SGD whose clip follows the noisy gradients and whose noise falls
with a public loss.

The clip of a client is alpha times the norm of the gradients that it released in the round before,
and its sigma falls by beta where the loss of its own model on public data (here the test set) fell
three rounds running. Both are functions of released values. The energy of the noise is taken out of
the norms, since the clip grows without end otherwise. Accountants compose events that are fixed
beforehand, which this sigma is not: each round is counted as the least sigma that it could have.
"""

from __future__ import annotations

from dpfl.algorithms.options import noise_of, weights_of
from dpfl.client.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.schedules import AdaptiveSchedule
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate


def adap_dp_fl(
    tau: int = 3,
    sampling_rate: float = 0.05,
    clip: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.999,
    noise_multiplier: float | None = None,
    rate: float = 2.0,
    weights: str = "size",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """tau steps of DP-SGD with the round's C and sigma, x <- sum_i p_i x_i, then C <- alpha |g|,
    sigma <- beta sigma or not.
    """
    return Algorithm(
        name="adap-dp-fl",
        local=LocalTraining(SGD(rate)),
        steps=FixedSteps(tau),
        samples=Release(Poisson(sampling_rate), Flat(clip), noise_of(noise_multiplier)),
        schedule=AdaptiveSchedule(alpha, beta),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        claim=Claim("RDP over the sigma of every step", "rdp"),
    )
