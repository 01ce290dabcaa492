"""DP-FTRL with a banded matrix (Choquette-Choo et al. 2023, on Kairouz et al. 2021): noise that
later rounds take back.

Client level, without sampling: clients take part in fixed turns, one group after another, and the
sums of all rounds are one Gaussian release of C x, C being the root of the prefix sums with all but
its first `bands` diagonals cut off. The model of a round, which is a sum over rounds, has far less
noise than with independent noise. A unit is in every `turns`-th round only, so bands up to that
number keep its columns apart, and its cost is proven by one Gaussian event for the whole run,
debited before the first round; a run that stops early has paid for all of it.
"""

from __future__ import annotations

from dpfl.algorithms.options import weights_of
from dpfl.client.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Release
from dpfl.privacy.mechanisms.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noise import Uncalibrated
from dpfl.privacy.mechanisms.sampling import Cyclic
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate


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
    """x <- x + eta_g (sum_i clip(x_i - x, c) + (C^-1 w)_t) / P, over the group of `cohort` clients
    whose turn it is.
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
