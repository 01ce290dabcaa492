"""FedAvg+DP, the baseline of ALI-DPFL and ALS-DPFL: DP-SGD at every client, with fixed tau.

    x_i <- x_i - eta (sum clip(g, C) + N(0, sigma^2 C^2)) / (q n_i), tau times
    x   <- sum_i (n_i / n) x_i

The guarantee is per sample, and holds against the server: every gradient is clipped and gets its
noise where the data is. The divisor is q n_i, with n_i declared before training. An empty batch is
released as pure noise. (The papers divide by the size of the batch that was drawn, which their
accounting does not cover.) Everything after the noisy gradient is post-processing, so any
optimiser may follow.
"""

from __future__ import annotations

from dpfl.algorithms.options import layer_clip_of, noise_of, weights_of
from dpfl.client.descent.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import Poisson, Release
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps


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
    """Builds DP-SGD at every client with a fixed number of local steps.

    Args:
        tau: Local steps per round.
        sampling_rate: Probability q with which each sample enters a step.
        clip: Largest L2 norm C of a sample's gradient.
        clipping: "flat" (one norm for the whole gradient) or "per-layer".
        noise_multiplier: Noise standard deviation over sensitivity. By default the least noise with
            which all rounds stay within epsilon.
        rate: Learning rate of the local steps.
        optimiser: Optimiser of the local steps: "sgd", "momentum", "adam" or "adagrad".
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.
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
