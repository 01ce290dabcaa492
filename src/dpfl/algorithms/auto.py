"""Our own: the planner's noise and learning rate, gradients of one length, and a centre that is
paid for.

Every ingredient was kept because it gives more accuracy at the same proven epsilon (docs/auto.md).
The clip is so small that every gradient is clipped to the same norm: no sample's share is lost to a
level that few reach, and only the rate is left to choose. That follows from the noise: over the
whole run it moves the model by `walk`. The mean of the samples is released once, with noise, for
models that subtract it (`scattering-linear`): what all samples have in common needs no gradients.
Averaging of iterates is free, and gave nothing at this rate: it is left as an option.
"""

from __future__ import annotations

from dpfl.algorithms.options import noise_of
from dpfl.client.optimisers import SGD, UncalibratedSGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate
from dpfl.server.weights import SizeWeights

CLIP, WALK = 0.05, 15.0
"""The clip, which only goes with the rate, and how far the noise of a whole run may carry the model
(docs/auto.md). Rows of a table have their own, by their declared length, where neither is given."""


def auto(
    tau: int = 1,
    sampling_rate: float = 0.1,
    clip: float | None = None,
    noise_multiplier: float | None = None,
    rate: float | None = None,
    walk: float | None = None,
    mean_noise: float | None = 20.0,
    averaging: float = 0.0,
) -> Algorithm:
    """Once m <- noisy mean; tau steps of x_i <- x_i - eta (sum C g / |g| + N(0, sigma^2 C^2)) / (q
    n_i), x <- sum_i p_i x_i.
    """
    return Algorithm(
        name="auto",
        local=LocalTraining(
            SGD(rate)
            if rate is not None
            else UncalibratedSGD(
                WALK if walk is None else walk, by_rows=clip is None and walk is None
            )
        ),
        steps=FixedSteps(tau),
        samples=Release(
            Poisson(sampling_rate), Flat(CLIP if clip is None else clip), noise_of(noise_multiplier)
        ),
        weights=SizeWeights(),
        server=ServerUpdate(averaging=averaging),
        centre=MeanQuery(mean_noise) if mean_noise else None,
        claim=Claim("there is no paper"),
    )
