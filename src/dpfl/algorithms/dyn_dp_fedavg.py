"""Dyn-DP-FedAvg (the schedule of Du et al. 2021 over rounds): DP-FedAvg whose clip and noise fall,
client level.

The variants are those of Dynamic DP-SGD: `sound` plans the noise by an accountant, `published` by a
limit theorem.
"""

from __future__ import annotations

from dpfl.algorithms.dyn_dp_sgd import CLAIM
from dpfl.algorithms.options import VARIANTS, noise_of, poisson_cohort_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Release
from dpfl.server.algorithm import Algorithm
from dpfl.server.schedules import DecaySchedule
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate


def dyn_dp_fedavg(
    variant: str = "sound",
    cohort: int | None = None,
    clip: float = 1.5,
    clip_decay: float = 0.3,
    mu_decay: float = 0.8,
    phases: int = 8,
    noise_multiplier: float | None = None,
    tau: int = 32,
    rate: float = 0.1,
    batch_size: int = 64,
    weights: str = "uniform",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """x <- x + eta_g (sum_i clip(x_i - x, C_t) + N(0, C_t^2 / mu_t^2)) / P, over a cohort of P
    expected clients.
    """
    choose("variant", variant, VARIANTS)
    return Algorithm(
        name="dyn-dp-fedavg",
        local=LocalTraining(SGD(rate), batch_size),
        steps=FixedSteps(tau),
        clients=Release(poisson_cohort_of(cohort), Flat(clip), noise_of(noise_multiplier)),
        schedule=DecaySchedule(clip_decay, mu_decay, phases),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        variant=variant,
        claim=CLAIM,
    )
