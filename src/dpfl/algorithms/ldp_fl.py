"""LDP-FL: local differential privacy of whole clients. Each clips its update to C and adds noise to
it, every round.

Whatever a client's data, two updates are at most 2 C apart, so its ledger pays for one Gaussian
release a round that protects all that it has, against the server itself. The price is noise of
deviation 2 z C on every upload, which only many clients average out.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, noise_of, weights_of
from dpfl.client.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import All, Flat, Release
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate


def ldp_fl(
    clip: float = 1.0,
    noise_multiplier: float | None = None,
    tau: int = 5,
    rate: float = 0.1,
    batch_size: int = 64,
    optimiser: str = "sgd",
    prox: float = 0.0,
    cohort: int | None = None,
    weights: str = "uniform",
    server_rate: float = 1.0,
) -> Algorithm:
    """x <- x + eta_g mean_i (clip(x_i - x, C) + N(0, (2 z C)^2))."""
    return Algorithm(
        name="ldp-fl",
        local=LocalTraining(optimiser_of(optimiser, rate), batch_size, prox),
        steps=FixedSteps(tau),
        updates=UpdateRelease(
            All(),
            Flat(clip),
            noise_of(noise_multiplier),
            sensitivity_bound=2 * clip,
            protects="client",
        ),
        clients=Release(cohort_of(cohort)),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate),
        claim=Claim("the Gaussian mechanism, composed by RDP", "rdp"),
    )
