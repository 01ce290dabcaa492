"""DP-FedAvg-WAV (Ranaweera et al., Algorithm 2): DP-FedAvg with noise on Haar coefficients, client
level.

    x <- x + eta_g Haar^-1(sum_i clip(Haar(x_i - x)) + N(0, z^2 C^2 / W^2)) / P, P expected clients

Published: Algorithm 2 as printed. Clients clip the gradients of *samples* to C. The noise on the
mean of their models, weighted by their samples d_k, has standard deviation z C / (q_c d) over W.
Then only eta C bounds each of the tau steps, and a client with the most samples, n (`samples`), can
move W H by sqrt(m) eta tau C n / (q_c d). The true noise multiplier is z / (sqrt(m) eta tau n).
`clipping = "updates"` is the smaller error: |x_i - x| clipped to C and noise z C / W on the sum,
which is z / sqrt(m) in truth. Both claim z, and the statement says what is proven. `lemma` adds
sqrt(2 / (2 + log2 m)) of the noise (Lemma 2).

Sound: clips |W H| of every update to C, so that z is true. Updates are transformed, not models: the
transform is linear, and a clip norm has a meaning for updates only.

The clip norm is given, or is the median of public clients (`public_clip`): of their updates, or, as
printed, of their samples' gradients at the first model.
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, haar_noise_of, poisson_cohort_of
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.errors import DpflError
from dpfl.privacy import FixedSize, Flat, PublicMedian, Release
from dpfl.privacy.mechanisms.clips.clip import Clip
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.aggregation.weights import SizeWeights, UniformWeights
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps

CLAIM = Claim(
    "section 4 of the paper: RDP at the noise multiplier z, as for plain DP-FedAvg", "rdp"
)


def dp_fedavg_wav(
    variant: str = "sound",
    cohort: int | None = None,
    clip: float = 1.0,
    clipping: str | None = None,
    public_clip: bool = False,
    noise_multiplier: float | None = None,
    haar_weights: str = "paper",
    by_layer: bool = False,
    energies: tuple[float, ...] = (),
    lemma: bool = False,
    tau: int = 32,
    rate: float = 0.1,
    batch_size: int = 64,
    samples: int = 600,
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """Builds DP-FedAvg with noise on Haar coefficients.

    Args:
        variant: "sound" or "published", as described for the system.
        cohort: Expected number of clients per round. By default all clients.
        clip: Largest L2 norm C of what is clipped.
        clipping: "updates", or "gradients" of samples (published). By default updates (sound) or
            gradients (published).
        public_clip: Use the median of public clients as clip norm (data.public_clients).
        noise_multiplier: Noise standard deviation over sensitivity. By default the least noise with
            which all rounds stay within epsilon.
        haar_weights: "paper" (m, then 2^level), "orthonormal" or "matched".
        by_layer: Transform one parameter at a time, not the whole vector.
        energies: Public energies of the Haar bands, for haar_weights = "matched".
        lemma: Add the noise of Lemma 2, sqrt(2 / (2 + log2 m)) of what is claimed (published).
        tau: Local steps per round.
        rate: Learning rate of the local steps.
        batch_size: Samples per local step. These steps add no noise of their own.
        samples: Samples of the largest client, n (published).
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.

    Raises:
        DpflError: A published option is set for the sound variant, or a word is unknown.
    """
    sound = choose("variant", variant, VARIANTS)
    kind = clipping or ("updates" if sound else "gradients")
    clips_gradients = choose("clipping", kind, {"updates": False, "gradients": True})
    if sound and (clips_gradients or lemma):
        raise DpflError(
            "A clip of gradients and the noise of Lemma 2 exist only in the published variant: set "
            "variant = 'published'."
        )
    if samples < 1:
        raise DpflError(f"The largest client has at least 1 sample, not {samples}.")
    updates: Clip = PublicMedian(clip) if public_clip else Flat(clip)
    if sound:
        updates = HaarClip(clip, "weighted", haar_weights, by_layer, energies, public=public_clip)
    far, portion = (rate * tau, 1 / (rate * tau * samples)) if clips_gradients else (1.0, None)
    noise = haar_noise_of(noise_multiplier, haar_weights, by_layer, energies, lemma, portion)
    steps = Release(FixedSize(batch_size), updates) if clips_gradients else None
    return Algorithm(
        name="dp-fedavg-wav",
        local=LocalTraining(SGD(rate), batch_size),
        steps=FixedSteps(tau),
        samples=steps,
        clients=Release(
            poisson_cohort_of(cohort), Flat(far * clip) if clips_gradients else updates, noise
        ),
        weights=SizeWeights() if clips_gradients else UniformWeights(),
        server=ServerUpdate(server_rate, server_momentum),
        variant=variant,
        claim=CLAIM,
    )
