"""DP-FTRL (Choquette-Choo et al. 2023, after Kairouz et al. 2021): banded noise that later rounds
cancel.

    x <- x + eta_g (sum_i clip(x_i - x, c) + (C^-1 w)_t) / P

Client level, without sampling. Clients take part in fixed turns, one group of P clients after
another. The sums of all rounds are one Gaussian release of C x. The matrix C is the square root of
the prefix sums, with all but its first `bands` diagonals cut off. The model of a round, which is a
sum over rounds, has far less noise than with independent noise. One client is in every `turns`-th
round only, so its columns do not overlap as long as `bands` is at most that number. Its cost is
proven by one Gaussian event for the whole run, debited before the first round. A run that stops
early has paid for all of it.
"""

from __future__ import annotations

from dpfl.algorithms.options import weights_of
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Release
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noises.noise import Uncalibrated
from dpfl.privacy.mechanisms.sampling import Cyclic
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps


def dp_ftrl(
    cohort: int = 1,
    bands: int | None = None,
    clip: float = 1.0,
    noise_multiplier: float | None = None,
    tau: int = 32,
    rate: float = 0.1,
    batch_size: int = 64,
    weights: str = "uniform",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """Builds DP-FedAvg with banded matrix noise.

    Args:
        cohort: Clients per group, P. The groups take turns.
        bands: Diagonals of C, hence rounds that share noise. By default one per turn.
        clip: Largest L2 norm c of a client's update.
        noise_multiplier: Noise standard deviation over sensitivity. By default the least noise with
            which all rounds stay within epsilon.
        tau: Local steps per round.
        rate: Learning rate of the local steps.
        batch_size: Samples per local step. These steps add no noise of their own.
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
    noise = BandedNoise(1.0 if noise_multiplier is None else noise_multiplier, bands)
    return Algorithm(
        name="dp-ftrl",
        local=LocalTraining(SGD(rate), batch_size),
        steps=FixedSteps(tau),
        clients=Release(
            Cyclic(cohort), Flat(clip), Uncalibrated(noise) if noise_multiplier is None else noise
        ),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        claim=Claim("one Gaussian release for the whole run, as the papers have it", "pld"),
    )
