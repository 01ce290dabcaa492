"""FedAvg (McMahan et al. 2017, Algorithm 1): local SGD, then the weighted mean of the models.

    x_i <- x, then tau steps of SGD on the data of client i
    x   <- x + eta_g sum_i w_i (x_i - x)

It protects nothing. It is the yardstick for the private systems (Algorithm 1 of the clipping
paper, with the server's own learning rate eta_g).
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, weights_of
from dpfl.client.descent.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import Release
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.steps.policy import FixedSteps


def fedavg(
    tau: int = 5,
    rate: float = 0.1,
    batch_size: int = 64,
    optimiser: str = "sgd",
    cohort: int | None = None,
    weights: str = "size",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """Builds FedAvg, which has no noise.

    Args:
        tau: Local steps per round.
        rate: Learning rate of the local steps.
        batch_size: Samples per local step. These steps add no noise of their own.
        optimiser: Optimiser of the local steps: "sgd", "momentum", "adam" or "adagrad".
        cohort: Number of clients per round. By default all clients.
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
    return Algorithm(
        name="fedavg",
        local=LocalTraining(optimiser_of(optimiser, rate), batch_size),
        steps=FixedSteps(tau),
        clients=Release(sampling=cohort_of(cohort)),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
    )
