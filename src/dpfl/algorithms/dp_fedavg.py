"""DP-FedAvg (McMahan et al. 2018; Zhang et al. 2021, Algorithm 3): noise on the sum of clipped
updates.

    x <- x + eta_g (sum_i clip(x_i - x, c) + N(0, z^2 c^2)) / P, over a cohort of P expected clients

Client level.

Published: the clip norm is half the mean norm of an update in a run of FedAvg without privacy on
the same clients (Zhang et al., section 2.2). That run is made first, for `pilot` rounds or as many
as the run has. The clip norm is then a function of raw updates, so no epsilon holds, whatever the
noise is. The claim is Theorem 3.2 of Zhang et al.

Sound: the divisor is the expected cohort, the noise is for the largest weight, and missing replies
change neither. The clip norm is given, follows a paid quantile (Andrew et al. 2021), or is the
median on public clients.

Noise at the clients (`noise = "clients"`, as in the paper) hides a single upload by z / sqrt(P)
only, so it needs secure aggregation. Each of the P clients can subtract its own share, so the noise
counts as z sqrt((P - 1) / P).
"""

from __future__ import annotations

from collections.abc import Callable

from dpfl.algorithms.options import VARIANTS, noise_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.errors import DpflError
from dpfl.privacy import (
    All,
    FixedCohort,
    Flat,
    PerLayer,
    PoissonSize,
    PublicMedian,
    Quantile,
    Release,
)
from dpfl.privacy.mechanisms.clips.adaptive_clip import ShareOfMean
from dpfl.privacy.mechanisms.clips.clip import Clip
from dpfl.privacy.mechanisms.sampling import Sampling
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps

LEAK = "the clip, half the mean norm of an update in a run without privacy: no noise covers it"


def dp_fedavg(
    variant: str = "sound",
    cohort: int | None = None,
    sampling: str = "poisson",
    clip: float = 1.0,
    clipping: str = "flat",
    noise_multiplier: float | None = None,
    noise: str = "server",
    tau: int = 32,
    rate: float = 0.1,
    batch_size: int = 64,
    weights: str = "uniform",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
    quantile: float = 0.5,
    count_noise: float | None = None,
    pilot: int | None = None,
) -> Algorithm:
    """Builds DP-FedAvg.

    Args:
        variant: "sound" or "published", as described for the system.
        cohort: Expected number of clients per round. By default all clients.
        sampling: How the cohort is drawn: "poisson", or "fixed-size" (exactly `cohort` clients).
        clip: Largest L2 norm of a client's update.
        clipping: "flat", "per-layer", "quantile" (paid for) or "public-median" (of public clients).
        noise_multiplier: Noise standard deviation over sensitivity. By default the least noise with
            which all rounds stay within epsilon.
        noise: Who adds the noise: "server", or "clients" (needs secure aggregation).
        tau: Local steps per round.
        rate: Learning rate of the local steps.
        batch_size: Samples per local step. These steps add no noise of their own.
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.
        quantile: Share of the updates that the clip norm should not cut, for quantile clipping.
        count_noise: Noise on the count of updates inside the clip norm, for quantile clipping.
        pilot: Rounds of the run without privacy (published). By default as many as the run has.

    Returns:
        The algorithm, ready for `dpfl.train`.

    Raises:
        DpflError: Noise is shared by clients and no cohort is given, or a word is unknown.
    """
    sound = choose("variant", variant, VARIANTS)
    bound = _clip(
        clipping, clip, quantile, (cohort or 80) / 20 if count_noise is None else count_noise
    )
    release = Release(
        sampling=_sampling(sampling, cohort),
        clip=bound if sound else ShareOfMean(clip, rounds=pilot),
        noise=noise_of(noise_multiplier),
        shared_by=_shared_by(noise, cohort),
    )
    return Algorithm(
        name="dp-fedavg",
        local=LocalTraining(SGD(rate), batch_size),
        steps=FixedSteps(tau),
        clients=release,
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        variant=variant,
        leaks=() if sound else (LEAK,),
        claim=Claim(
            "Theorem 3.2 of the paper, taken as RDP with the classic conversion", "rdp-classic"
        ),
    )


def _sampling(name: str, cohort: int | None) -> Sampling:
    kinds: dict[str, Callable[[int], Sampling]] = {
        "poisson": PoissonSize,
        "fixed-size": FixedCohort,
    }
    kind = choose("sampling", name, kinds)
    return All() if cohort is None else kind(cohort)


def _shared_by(noise: str, cohort: int | None) -> int | None:
    if choose("noise", noise, {"server": False, "clients": True}) and cohort is None:
        raise DpflError(
            "Noise shared over clients needs the size of the cohort: set algorithm.cohort."
        )
    return cohort if noise == "clients" else None


def _clip(name: str, level: float, quantile: float, count_noise: float) -> Clip:
    kinds: dict[str, Clip] = {
        "flat": Flat(level),
        "per-layer": PerLayer(level),
        "quantile": Quantile(level, quantile, count_noise=count_noise),
        "public-median": PublicMedian(level),
    }
    return choose("clipping", name, kinds)
