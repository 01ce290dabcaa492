"""DP-SGD-WAV (Ranaweera et al., Algorithm 1): DP-SGD with noise on Haar coefficients, sample level.

    x_i <- x_i - eta Haar^-1(sum clip(Haar g) + N(0, sigma^2 C^2 / W^2)) / (q n_i), tau times

W are the paper's weights, [m, then 2^level] for m coefficients. Then the mean over clients.

Published: clips the coefficients, |H| <= C, or each level of H (section 4.3, `clipping =
"levels"`), and claims sigma. That is a release of W H with noise sigma C, and |W H| can be m C. The
true noise multiplier is sigma / m: the constant gradient reaches it, and the statement says what
that proves. With `lemma` only sqrt(2 / (2 + log2 m)) of that noise is added (Lemma 2), and the
claim is still sigma.

Sound: clips |W H| <= C, so that sigma is true. What the paper gained by was too little noise, not
the wavelets. `haar_weights = "orthonormal"` is plain DP-SGD in distribution. `haar_weights =
"matched"` has the least total noise for band energies that are public (`energies`).

The clip norm is given, or is the median over the samples of public clients at the first model
(`public_clip`). Each client takes part by its own coin (`cohort` of them expected); a client that
takes part pays in full, and the draw earns no discount. The 1/L that the paper applies after the
inverse is left out; the divisor is q n_i. Any optimiser may follow.
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, haar_noise_of, poisson_cohort_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.errors import DpflError
from dpfl.privacy import Poisson, Release
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarLevels
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps

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
    """Builds DP-SGD with noise on Haar coefficients.

    Args:
        variant: "sound" or "published", as described for the system.
        tau: Local steps per round.
        cohort: Expected number of clients per round. By default all clients.
        sampling_rate: Probability q with which each sample enters a step.
        clip: Largest L2 norm C of the coefficients that are clipped.
        clipping: "flat", or "levels" (published): each level of coefficients by itself.
        public_clip: Use the median of public clients as clip norm (data.public_clients).
        noise_multiplier: Noise standard deviation over sensitivity. By default the least noise with
            which all rounds stay within epsilon.
        haar_weights: "paper" (m, then 2^level), "orthonormal" or "matched".
        by_layer: Transform one parameter at a time, not the whole vector.
        energies: Public energies of the Haar bands, for haar_weights = "matched".
        lemma: Add the noise of Lemma 2, sqrt(2 / (2 + log2 m)) of what is claimed (published).
        rate: Learning rate of the local steps.
        optimiser: Optimiser of the local steps: "sgd", "momentum", "adam" or "adagrad".
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.

    Raises:
        DpflError: A published option is set for the sound variant, or a word is unknown.
    """
    sound = choose("variant", variant, VARIANTS)
    by_level = choose("clipping", clipping, {"flat": False, "levels": True})
    if sound and (by_level or lemma):
        raise DpflError(
            "A clip by levels and the noise of Lemma 2 exist only in the published variant: set "
            "variant = 'published'."
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
