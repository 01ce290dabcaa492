"""ALS-DPFL (Ling et al. 2023, Algorithm 2): as ALI-DPFL, with tau from a bound on the gap to
central descent.

In every round tau is searched in [1, min(2 tau, 100)] for the least bound, with the corrected h of
(11) and T = min(R_s tau, R_c) of the candidate. The paper's bound (13) is evaluated where it is
defined: where its phi = omega (1 - beta eta / 2) - sigma^2 d / lambda^2 is above 0. `omega` (the
inverse square of the way to the optimum) and `lam` (the least loss above the optimum, below 1 by
Theorem 2) are given. Where it is not, and for networks it never is, the bound of Wang et al. 2019
stands in, with `phi` a number to choose: 5e-5 suits CNNs, 0.025 convex models. The run's notes say
how often.

`sound` takes rho, beta and xi from released gradients, the energy of their noise removed, or from
public clients (`estimates="public"`). With `most_tau` = 1 nothing is asked or chosen, and it runs
under secure aggregation, too. `published` has every client send a loss, a gradient and their
changes without noise: no epsilon holds. The paper gives no theorem; its figures are those of RDP
with the classic conversion.
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, noise_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.adaptive import AlsSteps
from dpfl.server.steps.ali_bounds import MOST_ITERATIONS
from dpfl.server.steps.policy import FixedSteps, StepPolicy
from dpfl.server.update import ServerUpdate

CLAIM = Claim(
    "as the paper's figures have it: RDP with the classic conversion, for the noisy gradients "
    "alone",
    "rdp-classic",
)


def als_dpfl(
    variant: str = "sound",
    phi: float = 5e-5,
    most_tau: int = MOST_ITERATIONS,
    estimates: str | None = None,
    omega: float = 1.0,
    lam: float = 1.0,
    sampling_rate: float = 0.015,
    clip: float = 1.0,
    noise_multiplier: float = 1.1,
    rate: float = 0.5,
    weights: str = "size",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """tau steps of DP-SGD divided by a fixed batch, x <- sum_i p_i x_i, then tau <- argmin of the
    bound.
    """
    sound = choose("variant", variant, VARIANTS)
    chosen = AlsSteps(phi, estimates or ("released" if sound else "raw"), omega, lam, most_tau)
    steps: StepPolicy = FixedSteps(1) if most_tau == 1 else chosen
    raw = (
        "rho, beta and a gradient of every client in every round, without noise: they decide tau",
    )
    return Algorithm(
        name="als-dpfl",
        local=LocalTraining(SGD(rate)),
        steps=steps,
        samples=Release(Poisson(sampling_rate), Flat(clip), noise_of(noise_multiplier)),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        variant=variant,
        claim=CLAIM,
        leaks=raw if steps.asks_raw else (),
    )
