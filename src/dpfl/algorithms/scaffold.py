"""SCAFFOLD (Karimireddy et al. 2020, Algorithm 1) and DP-SCAFFOLD (Noble et al. 2022): control
variates.

    x_i <- x_i - eta (g - c_i + c), tau times
    x   <- x + eta_g mean_i(x_i - x)

The control c_i of a client is its mean gradient in its last round (option II). The server computes
it from the upload, so clients keep no state. `scaffold` protects nothing. `dp_scaffold` takes
DP-SGD steps at every client (sample level, with a fixed clip norm). Its controls are computed from
noisy uploads, so they cost no privacy. It claims Theorem 4.1 of its paper.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, noise_of
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps


def scaffold(
    tau: int = 5,
    rate: float = 0.1,
    batch_size: int = 64,
    cohort: int | None = None,
    server_rate: float = 1.0,
) -> Algorithm:
    """Builds SCAFFOLD, which has no noise.

    Args:
        tau: Local steps per round.
        rate: Learning rate of the local steps.
        batch_size: Samples per local step. These steps add no noise of their own.
        cohort: Number of clients per round. By default all clients.
        server_rate: The server's learning rate eta_g along the mean update.

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
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
    """Builds DP-SCAFFOLD: g is the noisy gradient (sum clip(g, C) + N(0, sigma^2 C^2)) / (q n_i).

    Args:
        tau: Local steps per round.
        sampling_rate: Probability q with which each sample enters a step.
        clip: Largest L2 norm C of a sample's gradient.
        noise_multiplier: Noise standard deviation over sensitivity. By default the least noise with
            which all rounds stay within epsilon.
        rate: Learning rate of the local steps.
        cohort: Number of clients per round. By default all clients.
        server_rate: The server's learning rate eta_g along the mean update.

    Returns:
        The algorithm, ready for `dpfl.train`.
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
