"""FedAvg+DP, the baseline of ALI-DPFL and ALS-DPFL: DP-SGD at every client with a fixed number of
local steps.

Sample-level privacy against the server itself: every gradient is clipped and noised where the data
is. The divisor is q n with n declared before training, and an empty batch is released as noise (the
papers divide by the batch that was drawn, which their accounting does not cover). What happens to
the noisy gradient afterwards is free: any optimiser will do.
"""

from __future__ import annotations

from dpfl.algorithms.options import layer_clip_of, noise_of, weights_of
from dpfl.client.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import Poisson, Release
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate


def fedavg_dp(
    tau: int = 1,
    sampling_rate: float = 0.05,
    clip: float = 1.0,
    clipping: str = "flat",
    noise_multiplier: float | None = None,
    rate: float = 2.0,
    optimiser: str = "sgd",
    weights: str = "size",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """tau steps of x_i <- x_i - eta (sum clip(g, C) + N(0, sigma^2 C^2)) / (q n_i), then x <- sum_i
    (n_i / n) x_i.
    """
    return Algorithm(
        name="fedavg-dp",
        local=LocalTraining(optimiser_of(optimiser, rate)),
        steps=FixedSteps(tau),
        samples=Release(
            sampling=Poisson(sampling_rate),
            clip=layer_clip_of(clipping, clip),
            noise=noise_of(noise_multiplier),
        ),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        claim=Claim("as the papers account for it: RDP with the classic conversion", "rdp-classic"),
    )
