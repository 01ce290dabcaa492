"""PE-DPFL-like (after Shen et al. 2022): LDP-FL with training that makes the last layer robust to
noise.

    local loss l(W) + lambda l(W + N(0, sigma_p^2)), with W the last linear layer
    x <- x + eta_g mean_i (clip(x_i - x, C) + N(0, (2 z C)^2))

The perturbation is drawn anew in every step. Each client then clips its update and adds noise, and
pays for it as in LDP-FL; the perturbation changes nothing in the guarantee. The gradient is about
1 + lambda times that of l, so divide a learning rate of LDP-FL by 1 + lambda. The form of the loss
is inferred from descriptions of the system, not from its paper. tau = 3 is the value of the
comparison in the ALI-DPFL paper.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, noise_of, weights_of
from dpfl.client.descent.objectives import PerturbedScores
from dpfl.client.descent.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import All, Flat, Release
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps


def pe_dpfl(
    perturbation: float = 0.1,
    share: float = 1.0,
    clip: float = 1.0,
    noise_multiplier: float | None = None,
    tau: int = 3,
    rate: float = 0.1,
    batch_size: int = 64,
    optimiser: str = "sgd",
    prox: float = 0.0,
    cohort: int | None = None,
    weights: str = "uniform",
    server_rate: float = 1.0,
) -> Algorithm:
    """Builds LDP-FL with a perturbed last layer in the local loss.

    Args:
        perturbation: Standard deviation sigma_p of the noise on the last layer inside the loss.
        share: Weight lambda of the perturbed loss.
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
        name="pe-dpfl",
        local=LocalTraining(
            optimiser_of(optimiser, rate), batch_size, prox, PerturbedScores(share, perturbation)
        ),
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
