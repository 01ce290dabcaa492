"""ALI-DPFL (Ling et al. 2024, Algorithm 2): DP-SGD at every client, with tau from a convergence
bound.

    x_i <- x_i - eta (sum clip(g, C) + N(0, sigma^2 C^2)) / (q n_i), tau* times
    x   <- sum_i p_i x_i, then the next tau*

With R_s rounds and a privacy budget that buys R_c steps, tau = 1 where R_s >= R_c (Lemma 1).
Otherwise tau* of (9) minimises the bound (11). It is rounded, and stays within [1, 100] and within
the steps that remain.

Published: tau is a function of raw data, so no epsilon holds. There are two readings. "paper" has
formula (9), mu from raw gradients at the new aggregate, and the batch that was drawn as divisor.
"code" is the authors' program: its own formula, mu from steps in the place of gradients, Gamma from
losses on the last batch, the constant 64 as divisor, and clip norm 0.1. The claim is Theorem 2: RDP
of the sampled Gaussian with the classic conversion.

Sound: mu comes from gradients that the clients released anyway, with the energy of their noise
removed, and the divisor is q n_i. tau is then post-processing. This mu is the slope of clipped
gradients, a smaller number than that of raw ones. The formula is "corrected": the learning rate in
use, and without an algebraic slip of the paper.

In both variants mu and the formula are independent options. mu can be a number known in advance,
come from public clients ("public"), or from one noisy slope per round that the clients pay for like
a step ("paid"). Gamma is a number, "public" or "raw". tau* often leaves privacy unspent, which is
worth nothing: `whole_budget` raises tau to what uses it up by the last round. With `most_tau` = 1
nothing is asked or chosen, and the system runs under secure aggregation, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpfl.algorithms.options import VARIANTS, noise_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.errors import DpflError
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.adaptive import AliSteps
from dpfl.server.steps.ali_bounds import MOST_ITERATIONS, Formula
from dpfl.server.steps.policy import FixedSteps, StepPolicy

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
    """Defaults of the options, by the repair, the paper, or the authors' code.

    Attributes:
        formula: Which form of tau*.
        mu: Source of mu.
        gamma: Gamma, or its source.
        clip: Clip norm of a sample's gradient.
        divide_by_drawn: Whether the noisy sum is divided by the size of the batch that was drawn.
        divisor: Constant divisor of the noisy sum; None for q n_i.
        note: Ending of the claim's sentence.
    """

    formula: Formula
    mu: str
    gamma: float | str
    clip: float
    divide_by_drawn: bool
    divisor: float | None
    note: str


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
    """Builds DP-SGD with adaptive local iterations by the bound of ALI-DPFL.

    Args:
        variant: "sound" or "published", as described for the system.
        reading: "paper" or "code" (its authors'), for the published variant. By default paper.
        formula: tau's bound: "corrected", "printed", "consistent" or "code". By default by variant
            and reading.
        gamma: Gamma, how unlike the clients are: a number, "public" or "raw". By default by variant
            and reading.
        mu: mu of the bound: a number, "released", "paid", "public", "raw" or "steps". By default by
            variant and reading.
        whole_budget: Raise tau to what uses up epsilon by the last round.
        most_tau: Upper limit on tau. 1 fixes tau, which secure aggregation needs.
        sampling_rate: Probability q with which each sample enters a step.
        clip: Largest L2 norm C of a sample's gradient. By default 1, or 0.1 for reading = "code".
        noise_multiplier: Noise standard deviation over sensitivity.
        rate: Learning rate of the local steps.
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.

    Raises:
        DpflError: The options contradict each other, or a word is unknown.
    """
    defaults = _reading(choose("variant", variant, VARIANTS), reading)
    adaptive = AliSteps(
        formula or defaults.formula,
        defaults.gamma if gamma is None else gamma,
        defaults.mu if mu is None else mu,
        whole_budget,
        most_tau,
    )
    steps: StepPolicy = FixedSteps(1) if most_tau == 1 else adaptive
    exact_values = {
        RAW_SLOPES: adaptive.mu == "raw",
        LAST_STEPS: adaptive.mu == "steps",
        RAW_LOSSES: adaptive.gamma == "raw",
    }
    return Algorithm(
        name="ali-dpfl",
        local=LocalTraining(SGD(rate)),
        steps=steps,
        samples=Release(
            Poisson(sampling_rate),
            Flat(defaults.clip if clip is None else clip),
            noise_of(noise_multiplier),
            divide_by_drawn=defaults.divide_by_drawn,
            divisor=defaults.divisor,
        ),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        variant=variant,
        claim=Claim(CLAIM + defaults.note, "rdp-classic"),
        leaks=(
            *(leak for leak, leaves in exact_values.items() if leaves and steps is adaptive),
            *((BATCH_SIZES,) if defaults.divide_by_drawn else ()),
        ),
    )


def _reading(sound: bool, name: str | None) -> AliReading:
    if sound and name is not None:
        raise DpflError(
            "Only the published variant has readings: set variant = 'published', or leave reading "
            "out."
        )
    return SOUND if sound else choose("reading", name or "paper", READINGS)
