"""FedAvg (McMahan et al. 2017): local SGD, then the mean of the models. Protects nothing: the
yardstick.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, weights_of
from dpfl.client.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import Release
from dpfl.server.algorithm import Algorithm
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate


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
    """x <- x + eta_g sum_i w_i (x_i - x), with x_i after tau steps of SGD from x (clipping paper,
    Algorithm 1).
    """
    return Algorithm(
        name="fedavg",
        local=LocalTraining(optimiser_of(optimiser, rate), batch_size),
        steps=FixedSteps(tau),
        clients=Release(sampling=cohort_of(cohort)),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
    )
