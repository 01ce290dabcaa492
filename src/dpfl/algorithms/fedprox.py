"""FedProx (Li et al. 2020): FedAvg whose clients are held near the global model. Protects nothing.

With `noise_multiplier` or `private=True` its clients make DP-SGD steps instead (sample level): the
pull needs no data, so it is free.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, noise_of, weights_of
from dpfl.client.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate


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
    """tau steps of x_i <- x_i - eta (g + mu (x_i - x)), then the weighted mean; `prox` is the
    paper's mu.
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
