"""NbAFL (Wei et al. 2020, Algorithm 1): noise on every client's clipped model, and on the mean.

    x_i <- clip(x_i, C) + N(0, sigma_U^2)
    x   <- sum_i p_i x_i + N(0, sigma_D^2)

Published: the uplink noise is c L 2C / (m epsilon) and the downlink noise is that of Theorem 1, for
L `exposures` of an upload in T `rounds`, N `clients`, and m `samples` at the smallest of them. The
sensitivity 2C / m holds for a mean over samples, not for a model trained on them. One sample can
move a clipped model by 2C, so the true noise multiplier is m times smaller.

Sound: noise for 2C, planned by an accountant. It protects everything that a client has. Noise on
the way down would protect nothing more, and is left out.
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, noise_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import All, Release
from dpfl.privacy.accounting.published_claims import TwoWayNoise
from dpfl.privacy.mechanisms.clips.clip import ModelClip
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps

SOUND = Claim("nothing for this noise: the paper's theorem is for its own")


def nbafl(
    variant: str = "sound",
    clip: float = 10.0,
    noise_multiplier: float | None = None,
    total_epsilon: float = 10.0,
    delta: float = 1e-5,
    exposures: int = 25,
    rounds: int = 25,
    clients: int = 10,
    samples: int = 600,
    tau: int = 5,
    rate: float = 0.1,
    batch_size: int = 64,
    weights: str = "size",
) -> Algorithm:
    """Builds FedAvg with noise on every client's clipped model.

    Args:
        variant: "sound" or "published", as described for the system.
        clip: Largest L2 norm C of a client's model.
        noise_multiplier: Noise standard deviation over 2 C. By default planned from epsilon (sound)
            or taken from the paper's formula (published).
        total_epsilon: Epsilon of the whole run in the paper's noise (published).
        delta: Delta in the paper's noise (published).
        exposures: L of the paper's noise: how often an upload is seen (published).
        rounds: T of the paper's noise (published).
        clients: N of the paper's noise, the number of clients (published).
        samples: m of the paper's noise, the samples of the smallest client (published).
        tau: Local steps per round.
        rate: Learning rate of the local steps.
        batch_size: Samples per local step. These steps add no noise of their own.
        weights: Weights of the clients: "size" (declared before training) or "uniform".

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
    sound = choose("variant", variant, VARIANTS)
    paper = TwoWayNoise(total_epsilon, delta, clip, samples, exposures, rounds, clients)
    return Algorithm(
        name="nbafl",
        local=LocalTraining(SGD(rate), batch_size),
        steps=FixedSteps(tau),
        updates=UpdateRelease(
            All(),
            ModelClip(clip),
            noise_of(noise_multiplier if sound else noise_multiplier or paper.uplink / (2 * clip)),
            sensitivity_bound=2 * clip,
            protects="client" if sound else "sample",
        ),
        clients=Release(All()),
        weights=weights_of(weights),
        server=ServerUpdate(noise=0.0 if sound else paper.downlink),
        variant=variant,
        claim=SOUND if sound else Claim("Theorem 1 of the paper", formula=paper.claimed),
    )
