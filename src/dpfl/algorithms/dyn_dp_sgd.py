"""Dynamic DP-SGD (Du et al. 2021): DP-SGD with a planned decay of clip norm and noise, sample
level.

    C_t = C_0 rho_c^(t/T),  mu_t = mu_0 rho_mu^(-t/T),  mu = 1 / sigma
    x_i <- x_i - eta (sum clip(g, C_t) + N(0, C_t^2 / mu_t^2)) / (q n_i), tau times

Here t counts rounds, and the noise moves in `phases`.

Published: mu_0 is planned by the central limit theorem for Gaussian privacy, as in the paper. The
theorem is no bound: what it claims as epsilon 2.0 is 2.7 by RDP.

Sound: mu_0 is planned by an accountant, for the events that are released.
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, noise_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.schedules import DecaySchedule
from dpfl.server.steps.policy import FixedSteps

CLAIM = Claim("by the central limit theorem for Gaussian privacy, which is no bound", "gdp-clt")


def dyn_dp_sgd(
    variant: str = "sound",
    tau: int = 1,
    sampling_rate: float = 0.05,
    clip: float = 1.5,
    clip_decay: float = 0.3,
    mu_decay: float = 0.8,
    phases: int = 8,
    noise_multiplier: float | None = None,
    rate: float = 2.0,
    optimiser: str = "sgd",
    weights: str = "size",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """Builds DP-SGD with a planned decay; 1 / mu_0 is the noise multiplier.

    Args:
        variant: "sound" or "published", as described for the system.
        tau: Local steps per round.
        sampling_rate: Probability q with which each sample enters a step.
        clip: Clip norm C_0 of the first round.
        clip_decay: Last clip norm over the first, rho_c.
        mu_decay: Last noise multiplier over the first, rho_mu.
        phases: Number of phases in which the noise moves.
        noise_multiplier: Noise multiplier of the first round. By default the least noise with which
            all rounds stay within epsilon.
        rate: Learning rate of the local steps.
        optimiser: Optimiser of the local steps: "sgd", "momentum", "adam" or "adagrad".
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
    choose("variant", variant, VARIANTS)
    return Algorithm(
        name="dyn-dp-sgd",
        local=LocalTraining(optimiser_of(optimiser, rate)),
        steps=FixedSteps(tau),
        samples=Release(Poisson(sampling_rate), Flat(clip), noise_of(noise_multiplier)),
        schedule=DecaySchedule(clip_decay, mu_decay, phases),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        variant=variant,
        claim=CLAIM,
    )
