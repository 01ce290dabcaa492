"""ALS-DPFL (Ling et al. 2023, Algorithm 2): as ALI-DPFL, with tau from a bound on the gap to
central descent.

    x_i <- x_i - eta (sum clip(g, C) + N(0, sigma^2 C^2)) / (q n_i), tau times
    x   <- sum_i p_i x_i
    tau <- argmin of the bound over [1, min(2 tau, 100)]

The bound uses the corrected h of (11) and T = min(R_s tau, R_c) of the candidate. The paper's bound
(13) is evaluated where it is defined: where its phi = omega (1 - beta eta / 2) - sigma^2 d /
lambda^2 is above 0. There `omega` (the inverse square of the distance to the optimum) and `lam`
(the least loss above the optimum, below 1 by Theorem 2) are given. For networks it is never
defined. The bound of Wang et al. 2019 then takes its place, with `phi` a number to choose: 5e-5
suits CNNs, 0.025 convex models. The notes of a run say how often that happened.

Published: every client sends a loss, a gradient and their changes without noise, so no epsilon
holds. The paper gives no theorem; its figures are those of RDP with the classic conversion.

Sound: rho, beta and xi come from released gradients, with the energy of their noise removed, or
from public clients (`estimates = "public"`). With `most_tau` = 1 nothing is asked or chosen, and it
runs under secure aggregation, too.
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, noise_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.adaptive import AlsSteps
from dpfl.server.steps.ali_bounds import MOST_ITERATIONS
from dpfl.server.steps.policy import FixedSteps, StepPolicy

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
    """Builds DP-SGD with adaptive local steps by the bound of ALS-DPFL.

    Args:
        variant: "sound" or "published", as described for the system.
        phi: phi of the bound of Wang et al.: 5e-5 suits CNNs, 0.025 convex models.
        most_tau: Upper limit on tau. 1 fixes tau, which secure aggregation needs.
        estimates: Source of rho, beta and xi: "released", "public" or "raw". By default released
            (sound) or raw (published).
        omega: omega of the bound (13), the inverse square of the distance to the optimum.
        lam: lambda of the bound (13), the least loss above the optimum, below 1.
        sampling_rate: Probability q with which each sample enters a step.
        clip: Largest L2 norm C of a sample's gradient.
        noise_multiplier: Noise standard deviation over sensitivity.
        rate: Learning rate of the local steps.
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
    sound = choose("variant", variant, VARIANTS)
    adaptive = AlsSteps(phi, estimates or ("released" if sound else "raw"), omega, lam, most_tau)
    steps: StepPolicy = FixedSteps(1) if most_tau == 1 else adaptive
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
