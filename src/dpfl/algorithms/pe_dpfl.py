"""PE-DPFL-like (after Shen et al. 2022): LDP-FL whose clients train a classifier that noise on it
disturbs less.

The loss is l(W) + lambda l(W + N(0, sigma_p^2)) with W the last linear layer, drawn anew in every
step. Each client then clips its update to C and adds noise to it, for which its ledger pays as in
LDP-FL: the perturbation changes nothing in the guarantee. The gradient is about 1 + lambda times
that of l: divide a rate of LDP-FL by that. The form of the loss is inferred from descriptions of
the system, not from its paper; tau = 3 is that of the comparison in the ALI-DPFL paper.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, noise_of, weights_of
from dpfl.client.objectives import PerturbedScores
from dpfl.client.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import All, Flat, Release
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate


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
    """x <- x + eta_g mean_i (clip(x_i - x, C) + N(0, (2 z C)^2)); `perturbation` is sigma_p,
    `share` is lambda.
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
