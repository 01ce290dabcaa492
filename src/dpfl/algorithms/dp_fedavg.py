"""DP-FedAvg (McMahan et al. 2018; Zhang et al. 2021, Algorithm 3): client-level privacy by noise on
the sum of clipped updates.

`sound`: the divisor is the expected cohort, the noise is for the largest weight, and missing
replies change neither; the clip is given, follows a paid quantile, or is the median on public
clients. `published` sets it to half the mean norm of an update in a run of FedAvg without privacy
on the same clients (Zhang et al., section 2.2), which is made first, for `pilot` rounds or as many
as the run has. That clip is a function of raw updates: no epsilon holds of the run, whatever its
noise is.

The paper's noise at the clients (`noise="clients"`) hides a single upload by z / sqrt(P) only, and
so needs secure aggregation; each of the P can subtract its own share, so it counts as z sqrt((P -
1) / P).
"""

from __future__ import annotations

from collections.abc import Callable

from dpfl.algorithms.options import VARIANTS, noise_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.optimisers import SGD
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
from dpfl.privacy.mechanisms.adaptive_clip import ShareOfMean
from dpfl.privacy.mechanisms.clip import Clip
from dpfl.privacy.mechanisms.sampling import Sampling
from dpfl.server.algorithm import Algorithm, Claim
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate

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
    """x <- x + eta_g (sum_i clip(x_i - x, c) + N(0, z^2 c^2)) / P, over a cohort of P expected
    clients (all without one).
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
