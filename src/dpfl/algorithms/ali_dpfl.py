"""ALI-DPFL (Ling et al. 2024, Algorithm 2): DP-SGD at every client, with tau local steps a round from a convergence bound.

With R_s rounds and a privacy budget that buys R_c steps, tau = 1 where R_s >= R_c (Lemma 1), else the tau* of (9) that
minimises the bound (11), rounded, inside [1, 100] and inside what is left.

`sound` takes mu from gradients that the clients released anyway, with the energy of their noise removed, and divides by q n:
tau is then post-processing. Its `formula` is "corrected": the learning rate in use, and without a slip of algebra. `published`
has the authors' formula ("code"), a mu from gradients without noise, and the batch that was drawn as divisor: tau is then a
function of raw data, and no epsilon holds. Both can have any formula, and a mu that is known beforehand as a number, from
public clients ("public"), or from one noisy slope a round that the clients pay for like a step ("paid"); Gamma is a number,
"public", or as in the authors' code "raw". tau* often leaves privacy unspent, which is worth nothing: `whole_budget` raises tau
to what uses it up by the last round. The paper claims RDP of the sampled Gaussian with the classic conversion (Theorem
2).
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, choose, noise_of, weights_of
from dpfl.node.optimisers import SGD
from dpfl.node.task import Local
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.adaptive_steps import Ali
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.ali_bounds import Formula
from dpfl.server.update import ServerUpdate

CLAIM = Claim("Theorem 2 of the paper: RDP with the classic conversion, for the noisy gradients alone", "rdp-classic")
BATCH_SIZES = "the size of every batch, by which its noisy sum is divided"


def ali_dpfl(
    variant: str = "sound",
    formula: Formula | None = None,
    gamma: float | str = 10.0,
    mu: float | str | None = None,
    whole_budget: bool = False,
    sampling_rate: float = 0.015,
    clip: float = 1.0,
    noise_multiplier: float = 1.1,
    rate: float = 0.5,
    weights: str = "size",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """tau* steps of x_i <- x_i - eta (sum clip(g, C) + N(0, sigma^2 C^2)) / (q n_i), x <- sum_i p_i x_i, then the next tau*."""
    sound = choose("variant", variant, VARIANTS)
    estimate = mu if mu is not None else "released" if sound else "raw"
    steps = Ali(formula or ("corrected" if sound else "code"), gamma, estimate, whole_budget)
    raw = ("mu or Gamma of every client in every round, from raw gradients and losses: they decide tau",)
    return Algorithm(
        name="ali-dpfl",
        local=Local(SGD(rate)),
        steps=steps,
        samples=Release(Poisson(sampling_rate), Flat(clip), noise_of(noise_multiplier), realised=not sound),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        variant=variant,
        claim=CLAIM,
        leaks=(*(raw if steps.asks_raw else ()), *(() if sound else (BATCH_SIZES,))),
    )
