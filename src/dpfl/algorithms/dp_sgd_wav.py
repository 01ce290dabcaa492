"""DP-SGD-WAV (Ranaweera et al., Algorithm 1): DP-SGD with noise on the Haar coefficients of the
gradient, sample level.

Every coefficient gets noise of deviation sigma C / W, W being the paper's weights ([m, then
2^level]).

`published` clips |H| to C (or each level of H to C, section 4.3: `clipping="levels"`) and counts
sigma. That is releasing W H with noise sigma C, and |W H| can be m C: the multiplier is sigma / m
in truth (the constant gradient reaches it), and the statement says what that proves. With `lemma`
it adds what Lemma 2 has for m coefficients, sqrt(2 / (2 + log2 m)) of that noise, and still counts
sigma. `sound` clips |W H| to C, so that sigma is true; the noise, not the wavelets, was what the
paper gained by. `weights="orthonormal"` is plain DP-SGD in distribution, `weights="matched"` has
the least total noise for band energies that are public (`energies`). The coefficients are those of
the whole vector, or of a parameter at a time (`by_layer`). The clip is given, or the median over
the samples of public clients at the first model (`public_clip`). Clients are drawn by coins
(`cohort` of them expected, q_c of all); who is drawn pays, and nothing is gained by the draw. The
1/L of the paper after the inverse is left out; the divisor is q n. Any optimiser may follow.
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, haar_noise_of, poisson_cohort_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.errors import DpflError
from dpfl.privacy import Poisson, Release
from dpfl.privacy.mechanisms.haar_release import HaarClip, HaarLevels
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate

CLAIM = Claim(
    "section 4 of the paper: RDP at the noise multiplier sigma, as for plain DP-SGD", "rdp"
)


def dp_sgd_wav(
    variant: str = "sound",
    tau: int = 1,
    cohort: int | None = None,
    sampling_rate: float = 0.05,
    clip: float = 1.0,
    clipping: str = "flat",
    public_clip: bool = False,
    noise_multiplier: float | None = None,
    haar_weights: str = "paper",
    by_layer: bool = False,
    energies: tuple[float, ...] = (),
    lemma: bool = False,
    rate: float = 2.0,
    optimiser: str = "sgd",
    weights: str = "size",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """x_i <- x_i - eta Haar^-1(sum clip(Haar g) + N(0, sigma^2 C^2 / W^2)) / (q n_i), tau times,
    then the mean.
    """
    sound = choose("variant", variant, VARIANTS)
    by_level = choose("clipping", clipping, {"flat": False, "levels": True})
    if sound and (by_level or lemma):
        raise DpflError(
            "A clip by levels, and the noise of Lemma 2, are as published: set variant = "
            "'published'."
        )
    kind = "weighted" if sound else "levels" if by_level else "coefficients"
    bound = (HaarLevels if by_level else HaarClip)(
        clip, kind, haar_weights, by_layer, energies, public=public_clip
    )
    noise = haar_noise_of(noise_multiplier, haar_weights, by_layer, energies, lemma)
    return Algorithm(
        name="dp-sgd-wav",
        local=LocalTraining(optimiser_of(optimiser, rate)),
        steps=FixedSteps(tau),
        samples=Release(Poisson(sampling_rate), bound, noise),
        clients=Release(poisson_cohort_of(cohort)),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        variant=variant,
        claim=CLAIM,
    )
