"""Dyn-DP-FedAvg (Du et al. 2021): the schedule of Dynamic DP-SGD on DP-FedAvg, client level.

    x <- x + eta_g (sum_i clip(x_i - x, C_t) + N(0, C_t^2 / mu_t^2)) / P

P is the expected cohort. C_t and mu_t are those of Dynamic DP-SGD, and so are the variants:
published plans mu_0 by a limit theorem, sound by an accountant.
"""

from __future__ import annotations

from dpfl.algorithms.dyn_dp_sgd import CLAIM
from dpfl.algorithms.options import VARIANTS, noise_of, poisson_cohort_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Release
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.schedules import DecaySchedule
from dpfl.server.steps.policy import FixedSteps


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
    """Builds DP-FedAvg with a planned decay of clip norm and noise.

    Args:
        variant: "sound" or "published", as described for the system.
        cohort: Expected number of clients per round. By default all clients.
        clip: Clip norm C_0 of the first round.
        clip_decay: Last clip norm over the first, rho_c.
        mu_decay: Last noise multiplier over the first, rho_mu.
        phases: Number of phases in which the noise moves.
        noise_multiplier: Noise multiplier of the first round. By default the least noise with which
            all rounds stay within epsilon.
        tau: Local steps per round.
        rate: Learning rate of the local steps.
        batch_size: Samples per local step. These steps add no noise of their own.
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.
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
