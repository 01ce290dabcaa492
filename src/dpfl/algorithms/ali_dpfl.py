"""ALI-DPFL (Ling et al. 2024, Algorithm 2): DP-SGD at every client, with tau local steps a round
from a convergence bound.

With R_s rounds and a privacy budget that buys R_c steps, tau = 1 where R_s >= R_c (Lemma 1), else
the tau* of (9) that minimises the bound (11), rounded, inside [1, 100] and inside what is left.

`sound` takes mu from gradients that the clients released anyway, with the energy of their noise
removed, and divides by q n: tau is then post-processing. That mu is the slope of clipped gradients,
a smaller number than that of raw ones. Its `formula` is "corrected": the learning rate in use, and
without a slip of algebra. `published` has tau as a function of raw data, so that no epsilon holds,
in one of two readings: the "paper" (formula (9), mu from raw gradients at the new aggregate, the
batch that was drawn as divisor), or the authors' "code" (its own formula; mu from steps in the
place of gradients, Gamma from losses on the last batch, the constant 64 as divisor, clip 0.1).

mu and the formula are independent options, in both variants: mu can be a number that is known
beforehand, come from public clients ("public"), or from one noisy slope a round that the clients
pay for like a step ("paid"); Gamma is a number, "public" or "raw". tau* often leaves privacy
unspent, which is worth nothing: `whole_budget` raises tau to what uses it up by the last round.
With `most_tau` = 1 nothing is asked or chosen, and it runs under secure aggregation, too. The paper
claims RDP of the sampled Gaussian with the classic conversion (Theorem 2).
"""

from __future__ import annotations

from dataclasses import dataclass

from dpfl.algorithms.options import VARIANTS, noise_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.errors import DpflError
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.adaptive import AliSteps
from dpfl.server.steps.ali_bounds import MOST_ITERATIONS, Formula
from dpfl.server.steps.policy import FixedSteps, StepPolicy
from dpfl.server.update import ServerUpdate

CLAIM = "Theorem 2 of the paper: RDP with the classic conversion, for the noisy gradients alone"
BATCH_SIZES = "the size of every batch, by which its noisy sum is divided"
RAW_SLOPES = (
    "gradients without noise, of every client in every round: their slope is mu, which decides tau"
)
LAST_STEPS = (
    "how long the last step of every client was, in every round: it is in mu, which decides tau"
)
RAW_LOSSES = (
    "losses without noise, of every client in every round: their change is Gamma, which decides tau"
)


@dataclass(frozen=True)
class AliReading:
    """What to do where nothing else is said: by the repair, the paper, or the authors' code."""

    formula: Formula
    mu: str
    gamma: float | str
    clip: float
    realised: bool
    divisor: float | None
    said: str


SOUND = AliReading("corrected", "released", 10.0, 1.0, False, None, "")
READINGS = {
    "paper": AliReading("printed", "raw", 10.0, 1.0, True, None, "; tau as the paper prints it"),
    "code": AliReading(
        "code", "steps", "raw", 0.1, False, 64.0, "; tau and divisor as the authors' code has them"
    ),
}


def ali_dpfl(
    variant: str = "sound",
    reading: str | None = None,
    formula: Formula | None = None,
    gamma: float | str | None = None,
    mu: float | str | None = None,
    whole_budget: bool = False,
    most_tau: int = MOST_ITERATIONS,
    sampling_rate: float = 0.015,
    clip: float | None = None,
    noise_multiplier: float = 1.1,
    rate: float = 0.5,
    weights: str = "size",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """tau* steps of x_i <- x_i - eta (sum clip(g, C) + N(0, sigma^2 C^2)) / (q n_i), x <- sum_i p_i
    x_i, then the next tau*.
    """
    read = _reading(choose("variant", variant, VARIANTS), reading)
    chosen = AliSteps(
        formula or read.formula,
        read.gamma if gamma is None else gamma,
        read.mu if mu is None else mu,
        whole_budget,
        most_tau,
    )
    steps: StepPolicy = FixedSteps(1) if most_tau == 1 else chosen
    if read.divisor and chosen.mu in ("released", "paid"):
        raise DpflError(
            f"mu = {chosen.mu!r} needs noisy sums that are divided by q n: leave reading = 'code' "
            "out."
        )
    exact = {
        RAW_SLOPES: chosen.mu == "raw",
        LAST_STEPS: chosen.mu == "steps",
        RAW_LOSSES: chosen.gamma == "raw",
    }
    return Algorithm(
        name="ali-dpfl",
        local=LocalTraining(SGD(rate)),
        steps=steps,
        samples=Release(
            Poisson(sampling_rate),
            Flat(read.clip if clip is None else clip),
            noise_of(noise_multiplier),
            divide_by_drawn=read.realised,
            divisor=read.divisor,
        ),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        variant=variant,
        claim=Claim(CLAIM + read.said, "rdp-classic"),
        leaks=(
            *(leak for leak, sent in exact.items() if sent and steps is chosen),
            *((BATCH_SIZES,) if read.realised else ()),
        ),
    )


def _reading(sound: bool, name: str | None) -> AliReading:
    if sound and name is not None:
        raise DpflError(
            "A reading is of what is published: set variant = 'published' with it, or leave it out."
        )
    return SOUND if sound else choose("reading", name or "paper", READINGS)
