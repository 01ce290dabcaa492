"""Adap DP-FL (Fu et al. 2022): DP-SGD with a clip norm per client and noise that adapts to a public
loss.

    tau steps of DP-SGD with the C and sigma of the round; x <- sum_i p_i x_i
    C <- alpha |noisy gradients of the last round|
    sigma <- beta sigma, where a public loss fell three rounds running

The public loss is that of the client's own model on public data (here the test set). Both rules
read released values only. The energy of the noise is subtracted from the norms; without that the
clip norm grows without end. Accountants compose events that are fixed in advance. This sigma is
not, so each round is counted with the least sigma that it could have. The paper claims RDP over
the sigma of every step.
"""

from __future__ import annotations

from dpfl.algorithms.options import noise_of, weights_of
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.privacy import Flat, Poisson, Release
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.schedules import AdaptiveSchedule
from dpfl.server.steps.policy import FixedSteps


def adap_dp_fl(
    tau: int = 3,
    sampling_rate: float = 0.05,
    clip: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.999,
    noise_multiplier: float | None = None,
    rate: float = 2.0,
    weights: str = "size",
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """Builds DP-SGD with an adaptive clip norm and noise.

    Args:
        tau: Local steps per round.
        sampling_rate: Probability q with which each sample enters a step.
        clip: Clip norm C of the first round.
        alpha: The next clip norm, as a multiple of the mean norm of the gradients released last.
        beta: Factor on the noise after three rounds in which the public loss fell.
        noise_multiplier: Noise standard deviation over sensitivity. By default the least noise with
            which all rounds stay within epsilon.
        rate: Learning rate of the local steps.
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
    return Algorithm(
        name="adap-dp-fl",
        local=LocalTraining(SGD(rate)),
        steps=FixedSteps(tau),
        samples=Release(Poisson(sampling_rate), Flat(clip), noise_of(noise_multiplier)),
        schedule=AdaptiveSchedule(alpha, beta),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate, server_momentum),
        claim=Claim("RDP over the sigma of every step", "rdp"),
    )
