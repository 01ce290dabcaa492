"""DP-FedAvg-WAV (Ranaweera et al., Algorithm 2): DP-FedAvg with the server's noise on Haar coefficients, client level.

`published` clips |g| to C: with the paper's weights the multiplier is z / sqrt(m) in truth, and the statement says what that
proves. `sound` clips |W H| of every update to C, so that z is true. Updates are transformed, not models: the transform is
linear, and a clip has a meaning for updates only. (As printed the clip is on single gradients while the release is a model
after many steps, and the noise ignores the clients' weights; with either no guarantee would be left to state.)
"""

from __future__ import annotations

from dpfl.algorithms.options import VARIANTS, choose, haar_noise_of, poisson_cohort_of
from dpfl.node.optimisers import SGD
from dpfl.node.task import Local
from dpfl.privacy import Flat, Release
from dpfl.privacy.clip import Clip
from dpfl.privacy.haar_release import HaarClip
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps import Fixed
from dpfl.server.update import ServerUpdate

CLAIM = Claim("section 4 of the paper: RDP at the noise multiplier z, as for plain DP-FedAvg", "rdp")


def dp_fedavg_wav(
    variant: str = "sound",
    cohort: int | None = None,
    clip: float = 1.0,
    noise_multiplier: float | None = None,
    haar_weights: str = "paper",
    by_layer: bool = False,
    energies: tuple[float, ...] = (),
    tau: int = 32,
    rate: float = 0.1,
    batch_size: int = 64,
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """x <- x + eta_g Haar^-1(sum_i clip(Haar(x_i - x)) + N(0, z^2 C^2 / W^2)) / P, with P expected clients."""
    sound = choose("variant", variant, VARIANTS)
    bound: Clip = HaarClip(clip, "weighted", haar_weights, by_layer, energies) if sound else Flat(clip)
    return Algorithm(
        name="dp-fedavg-wav",
        local=Local(SGD(rate), batch_size),
        steps=Fixed(tau),
        clients=Release(poisson_cohort_of(cohort), bound, haar_noise_of(noise_multiplier, haar_weights, by_layer, energies)),
        server=ServerUpdate(server_rate, server_momentum),
        variant=variant,
        claim=CLAIM,
    )
