"""FedProx (Li et al. 2020, Algorithm 2): FedAvg with a pull of each client towards the global
model.

    x_i <- x_i - eta (g + mu (x_i - x)), tau times
    x   <- sum_i w_i x_i

By default it protects nothing. With `noise_multiplier` or `private = true` the clients take DP-SGD
steps instead (sample level). The pull reads no data, so it costs no privacy.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, noise_of, weights_of
from dpfl.client.descent.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps


def fedprox(
    prox: float = 0.01,
    tau: int = 5,
    rate: float = 0.1,
    batch_size: int = 64,
    optimiser: str = "sgd",
    private: bool = False,
    sampling_rate: float = 0.05,
    clip: float = 1.0,
    noise_multiplier: float | None = None,
    cohort: int | None = None,
    weights: str = "size",
    server_rate: float = 1.0,
) -> Algorithm:
    """Builds FedProx, with plain or DP-SGD steps.

    Args:
        prox: Strength of the pull, the paper's mu.
        tau: Local steps per round.
        rate: Learning rate of the local steps.
        batch_size: Samples per local step, for steps without noise.
        optimiser: Optimiser of the local steps: "sgd", "momentum", "adam" or "adagrad".
        private: Take DP-SGD steps, with noise planned from epsilon unless it is given.
        sampling_rate: Probability q with which each sample enters a DP-SGD step.
        clip: Largest L2 norm of a sample's gradient in DP-SGD steps.
        noise_multiplier: Noise standard deviation over sensitivity. If given, the steps are DP-SGD
            steps.
        cohort: Number of clients per round. By default all clients.
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
    noisy = private or noise_multiplier is not None
    return Algorithm(
        name="fedprox",
        local=LocalTraining(optimiser_of(optimiser, rate), batch_size, prox),
        steps=FixedSteps(tau),
        samples=Release(Poisson(sampling_rate), Flat(clip), noise_of(noise_multiplier))
        if noisy
        else None,
        clients=Release(cohort_of(cohort)),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate),
        claim=Claim("no privacy is claimed"),
    )
