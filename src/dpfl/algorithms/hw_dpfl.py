"""HW-DPFL (Tan, Wu and Tao 2023, Algorithm 1): clients weighted by label distribution, noise on
every upload.

    E steps on b samples each, every gradient clipped to G
    x_i <- x_i + N(0, (z s)^2), with s the sensitivity of the update (9)
    x   <- sum_i h_i x_i / sum_i h_i

The weights h_i (5-8) come from the clients' label histograms, which are asked for once.

Published: the noise is that of Theorem 1, for `round_epsilon` per round and sensitivity 2 eta G E.
The theorem holds for epsilon < 2 gamma only, with gamma = E b / n_k <= 1. The claim is Theorem 2.
Both use each client's own n_k; `samples` gives one number to all. The weights grow with the
Hellinger distance, which favours skewed clients. The histogram leaves without noise: no epsilon
holds.

Sound: the noise is planned by an accountant over all rounds, and claims no gain from sampling. One
sample moves the mean of the first batch that contains it by at most 2 G / b, and each later
gradient by at most 2 G, hence the update by 2 eta G (E - 1 + 1 / b). The default is E = 1. The
histogram is released with noise that is paid for, and weighs by similarity (1 - h).
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, cohort_of, noise_of
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import All, FixedSize, Flat, Release
from dpfl.privacy.accounting.published_claims import HellingerNoise
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.server.aggregation.hellinger import KINDS
from dpfl.server.aggregation.weights import HellingerWeights
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps

SOUND = Claim("nothing for this noise: the paper's theorem is for its own")
PAPER_SAMPLES = 600
"""Samples of a client in the paper."""
HISTOGRAM = "the label histogram of every client, without noise: it decides the weights"


def hw_dpfl(
    variant: str = "sound",
    tau: int | None = None,
    batch_size: int = 50,
    clip: float = 1.0,
    rate: float = 0.05,
    noise_multiplier: float | None = None,
    round_epsilon: float = 1.0,
    delta: float = 1e-5,
    samples: int | None = None,
    weights: str | None = None,
    histogram_noise: float = 10.0,
    cohort: int | None = None,
) -> Algorithm:
    """Builds Hellinger-weighted aggregation with noise on every update.

    Args:
        variant: "sound" or "published", as described for the system.
        tau: Local steps per round, E. By default 1 (sound) or 10 (published).
        batch_size: Samples per local step, b. Every batch has exactly this size.
        clip: Largest L2 norm G of a sample's gradient.
        rate: Learning rate of the local steps.
        noise_multiplier: Noise standard deviation over the update's sensitivity. By default planned
            from epsilon (sound) or taken from Theorem 1 (published).
        round_epsilon: Epsilon of one round in the paper's noise (published).
        delta: Delta in the paper's noise (published).
        samples: n_k of the paper's noise for all clients (published). By default each client's own.
        weights: "similarity" or "distance" of the label histograms. By default similarity (sound)
            or distance (published).
        histogram_noise: Noise multiplier of the released label histogram (sound).
        cohort: Number of clients per round. By default all clients.

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
    sound = choose("variant", variant, VARIANTS)
    steps = tau or (1 if sound else 10)
    paper = HellingerNoise(
        round_epsilon, delta, steps, batch_size, samples or PAPER_SAMPLES, rate, clip
    )
    same_for_all = sound or noise_multiplier is not None or samples is not None
    noise = noise_of(noise_multiplier if sound else noise_multiplier or paper.noise_multiplier)
    kind = choose(
        "weights",
        weights or ("similarity" if sound else "distance"),
        dict(zip(KINDS, KINDS, strict=True)),
    )
    return Algorithm(
        name="hw-dpfl",
        local=LocalTraining(SGD(rate)),
        steps=FixedSteps(steps),
        samples=Release(FixedSize(batch_size), Flat(clip)),
        updates=UpdateRelease(
            All(),
            Flat(rate * clip * steps),
            noise,
            sensitivity_bound=2 * rate * clip * (steps - 1 + 1 / batch_size)
            if sound
            else paper.sensitivity,
            by_samples=None if same_for_all else paper,
        ),
        clients=Release(cohort_of(cohort)),
        weights=HellingerWeights(kind, LabelQuery(histogram_noise if sound else None)),
        variant=variant,
        claim=Claim("Theorem 2 of the paper", formula=paper.claimed) if not sound else SOUND,
        leaks=() if sound else (HISTOGRAM,),
    )
