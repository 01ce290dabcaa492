"""SCAFFOLD (Karimireddy et al. 2020) and DP-SCAFFOLD (Noble et al. 2022): control variates against
client drift.

Every client adds c - c_i to its gradients. c_i is the mean gradient that it went along in its last
round (option II), which the server reads off the upload: clients keep nothing. `scaffold` protects
nothing. `dp_scaffold` has DP-SGD steps at every client (sample level, a fixed clip); its controls
are made of noisy uploads alone and so are free.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, noise_of
from dpfl.client.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate


def scaffold(
    tau: int = 5,
    rate: float = 0.1,
    batch_size: int = 64,
    cohort: int | None = None,
    server_rate: float = 1.0,
) -> Algorithm:
    """x_i <- x_i - eta (g - c_i + c), tau times; x <- x + eta_g mean(x_i - x)."""
    return Algorithm(
        name="scaffold",
        local=LocalTraining(SGD(rate), batch_size),
        steps=FixedSteps(tau),
        clients=Release(cohort_of(cohort)),
        server=ServerUpdate(server_rate),
        controls=True,
    )


def dp_scaffold(
    tau: int = 5,
    sampling_rate: float = 0.05,
    clip: float = 1.0,
    noise_multiplier: float | None = None,
    rate: float = 0.5,
    cohort: int | None = None,
    server_rate: float = 1.0,
) -> Algorithm:
    """The same with the noisy gradient (sum clip(g, C) + N(0, sigma^2 C^2)) / (q n_i) in place of
    g.
    """
    return Algorithm(
        name="dp-scaffold",
        local=LocalTraining(SGD(rate)),
        steps=FixedSteps(tau),
        samples=Release(Poisson(sampling_rate), Flat(clip), noise_of(noise_multiplier)),
        clients=Release(cohort_of(cohort)),
        server=ServerUpdate(server_rate),
        controls=True,
        claim=Claim("Theorem 4.1 of the paper, taken as RDP with the improved conversion", "rdp"),
    )
