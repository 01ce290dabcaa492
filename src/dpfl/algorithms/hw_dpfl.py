"""HW-DPFL (Tan, Wu, Tao 2023): clients weighted by the Hellinger distance of their labels, noise on
every client's upload.

A client makes E steps on b samples each, every gradient clipped to G, then adds noise to its update
once (9). Weights (5-8) come from the clients' label histograms, asked for once.

`sound` plans the noise by an accountant over all rounds and claims no gain from sampling. One
sample moves the mean of the first batch that it is in by 2 G / b and those after by 2 G at most, so
the update by 2 eta G (E - 1 + 1 / b): the default is E = 1. The histogram is released with noise
that is paid for, and weighs by similarity (1 - h). `published` takes the noise of Theorem 1 for
`round_epsilon` a round on 2 eta G E (which holds for epsilon < 2 gamma, gamma = E b / n_k <= 1,
only), claims Theorem 2, both with each client's own n_k (`samples` gives all the same), weighs by
distance, which favours skewed clients, and has the histogram as it is: no epsilon holds.
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, cohort_of, noise_of
from dpfl.bad_values import choose
from dpfl.client.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import All, FixedSize, Flat, Release
from dpfl.privacy.accounting.published_claims import HellingerNoise
from dpfl.privacy.mechanisms.release import UpdateRelease
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.hellinger import KINDS
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.weights import HellingerWeights

SOUND = Claim("nothing for this noise: the paper's theorem is for its own")
USUAL = 600
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
    """E steps without noise, x_i + N(0, (z moves)^2), then x <- sum_i h_i x_i / sum h_i; tau is E,
    clip G, samples n_k.
    """
    sound = choose("variant", variant, VARIANTS)
    steps = tau or (1 if sound else 10)
    paper = HellingerNoise(round_epsilon, delta, steps, batch_size, samples or USUAL, rate, clip)
    given = sound or noise_multiplier is not None or samples is not None
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
            by_samples=None if given else paper,
        ),
        clients=Release(cohort_of(cohort)),
        weights=HellingerWeights(kind, LabelQuery(histogram_noise if sound else None)),
        variant=variant,
        claim=Claim("Theorem 2 of the paper", formula=paper.claimed) if not sound else SOUND,
        leaks=() if sound else (HISTOGRAM,),
    )
