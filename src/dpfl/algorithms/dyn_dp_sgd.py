"""Dynamic DP-SGD (Du et al. 2021): DP-SGD whose clip and noise fall over the run, sample level.

C_t = C_0 rho_c^(t/T) and mu_t = mu_0 rho_mu^(-t/T), mu being 1 / sigma; t counts rounds here, and
the noise moves in `phases`.

`sound` plans mu_0 by an accountant for the events that are released. `published` plans it by the
central limit theorem, as the paper does, which understates: what it claims as 2.0 is 2.7 by RDP.
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, noise_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.schedules import DecaySchedule
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate

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
    """x_i <- x_i - eta (sum clip(g, C_t) + N(0, C_t^2 / mu_t^2)) / (q n_i), tau times, then the
    mean; 1 / mu_0 is the noise.
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
