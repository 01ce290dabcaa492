"""Our own: planned noise and learning rate, gradients of equal norm, and a mean that is paid for.

    m   <- noisy mean of the samples, once, for models that subtract it
    x_i <- x_i - eta (sum C g / |g| + N(0, sigma^2 C^2)) / (q n_i), tau times
    x   <- sum_i p_i x_i

There is no paper. docs/auto.md measures what each ingredient adds at the same proven epsilon. The
clip norm is so small that every gradient is scaled to it. No sample is favoured, and only the
learning rate remains to be chosen. It follows from the noise: over the whole run the noise moves
the model by `walk`. The mean of the samples is released once, with noise, for models that subtract
it (`scattering-linear`): what all samples have in common needs no gradients. Averaging of iterates
is free, and gave nothing at this rate, so it is off by default.
"""

from __future__ import annotations

from dpfl.algorithms.options import noise_of
from dpfl.client.descent.optimisers import SGD, UncalibratedSGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.aggregation.weights import SizeWeights
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps

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
    """Builds our own system, with noise and learning rate planned from the budget.

    Args:
        tau: Local steps per round.
        sampling_rate: Probability q with which each sample enters a step.
        clip: Largest L2 norm of a sample's gradient. By default 0.05; on a table, the usual norm.
        noise_multiplier: Noise standard deviation over sensitivity. By default the least noise with
            which all rounds stay within epsilon.
        rate: Learning rate of the local steps. By default it follows from the noise and `walk`.
        walk: Distance that the noise of the whole run may move the model. By default 15; on a
            table, from the length of a row.
        mean_noise: Noise multiplier of the released mean of the samples. 0 releases no mean.
        averaging: Power p: iterate t weighs about t^p in the mean that is the model. 0 means no
            mean.

    Returns:
        The algorithm, ready for `dpfl.train`.
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
