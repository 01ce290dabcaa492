"""CE-FedAvg (Zhang et al. 2021, Algorithm 2): FedAvg with clipped updates and two learning rates.

    x <- x + eta_g / P sum_i clip(x_i - x, c)

It protects nothing. `clipping = "difference"` bounds x_i - x, as the paper advises. `clipping =
"model"` bounds x_i itself, and stops short of the optimum wherever the optimum lies outside the
bound (Claim 2.1).
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Release
from dpfl.privacy.mechanisms.clips.clip import ModelClip
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.steps.policy import FixedSteps


def ce_fedavg(
    clip: float = 1.0,
    clipping: str = "difference",
    tau: int = 32,
    rate: float = 0.1,
    server_rate: float = 1.0,
    batch_size: int = 64,
    cohort: int | None = None,
    weights: str = "uniform",
) -> Algorithm:
    """Builds clipping-enabled FedAvg, which has no noise.

    Args:
        clip: Largest L2 norm c of an update, or of a model.
        clipping: What is clipped: "difference" (the update) or "model".
        tau: Local steps per round.
        rate: Learning rate eta_l of the local steps.
        server_rate: The server's learning rate eta_g along the mean update.
        batch_size: Samples per local step. These steps add no noise of their own.
        cohort: Number of clients per round. By default all clients.
        weights: Weights of the clients: "size" (declared before training) or "uniform".

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
    bound = choose("clipping", clipping, {"difference": Flat, "model": ModelClip})
    return Algorithm(
        name="ce-fedavg",
        local=LocalTraining(SGD(rate), batch_size),
        steps=FixedSteps(tau),
        clients=Release(sampling=cohort_of(cohort), clip=bound(clip)),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate),
    )
