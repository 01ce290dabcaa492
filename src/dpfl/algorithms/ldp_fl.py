"""LDP-FL: local differential privacy of whole clients, by noise on every clipped update.

    x <- x + eta_g mean_i (clip(x_i - x, C) + N(0, (2 z C)^2))

Any two updates of a client are at most 2 C apart, whatever its data. So each round is one Gaussian
release that protects everything the client has, against the server itself, and the client's own
ledger pays for it. The price is noise of standard deviation 2 z C on every upload, which only many
clients average out. It claims the Gaussian mechanism composed by RDP.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, noise_of, weights_of
from dpfl.client.descent.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import All, Flat, Release
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps


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
    """Builds FedAvg with noise on every client's clipped update.

    Args:
        clip: Largest L2 norm C of a client's update.
        noise_multiplier: Noise standard deviation over sensitivity. By default the least noise with
            which all rounds stay within epsilon.
        tau: Local steps per round.
        rate: Learning rate of the local steps.
        batch_size: Samples per local step. These steps add no noise of their own.
        optimiser: Optimiser of the local steps: "sgd", "momentum", "adam" or "adagrad".
        prox: Strength of the pull towards the global model (FedProx).
        cohort: Number of clients per round. By default all clients.
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
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
