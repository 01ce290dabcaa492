"""Own systems from parts by name: any steps with any noise, weights, pull and objective that has a
proof.

`where` says what gets the noise: every gradient in the steps of a client ("steps"), a client's
whole upload ("uploads"), the sum of a round ("round"), or nothing ("none"). What has no proof is
refused with the reason. Nothing is claimed beyond what is proven.
"""

from __future__ import annotations

from dpfl.algorithms.options import haar_noise_of, noise_of, poisson_cohort_of, weights_of
from dpfl.bad_values import choose
from dpfl.client.descent.objectives import Contrastive, CrossEntropy, Objective, PerturbedScores
from dpfl.client.descent.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import All, Flat, PerLayer, Poisson, PublicMedian, Quantile, Release
from dpfl.privacy.mechanisms.clips.clip import Clip
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.noises.noise import Gaussian, Uncalibrated
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.server.aggregation.hellinger import KINDS
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.aggregation.weights import HellingerWeights, Weights
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.adaptive import AliSteps, AlsSteps
from dpfl.server.steps.policy import FixedSteps, StepPolicy

WHERE = ("steps", "uploads", "round", "none")


def custom(
    where: str = "steps",
    steps: str = "fixed",
    tau: int = 1,
    gamma: float = 10.0,
    phi: float = 5e-5,
    sampling_rate: float = 0.05,
    cohort: int | None = None,
    clip: float = 1.0,
    clipping: str = "flat",
    haar_weights: str = "paper",
    quantile: float = 0.5,
    count_noise: float = 4.0,
    noise_multiplier: float | None = None,
    rate: float = 0.5,
    optimiser: str = "sgd",
    batch_size: int = 64,
    prox: float = 0.0,
    objective: str = "plain",
    mu: float = 1.0,
    temperature: float = 0.5,
    share: float = 1.0,
    perturbation: float = 0.1,
    controls: bool = False,
    weights: str = "size",
    histogram_noise: float = 10.0,
    server_rate: float = 1.0,
    server_momentum: float = 0.0,
) -> Algorithm:
    """Builds an algorithm from parts by name.

    Args:
        where: What gets the noise: "steps", "uploads", "round" (its sum) or "none".
        steps: Number of local steps per round: "fixed", "ali" or "als" (adaptive).
        tau: Local steps per round, for steps = "fixed".
        gamma: Gamma, how unlike the clients are, for steps = "ali".
        phi: phi of the bound, for steps = "als": 5e-5 suits CNNs, 0.025 convex models.
        sampling_rate: Probability q with which each sample enters a step.
        cohort: Expected number of clients per round. By default all clients.
        clip: Largest L2 norm of what gets the noise: a gradient or an update.
        clipping: "flat", "per-layer" or "haar"; with where = "round" also "quantile" and
            "public-median".
        haar_weights: For clipping = "haar": "paper" (m, then 2^level) or "orthonormal".
        quantile: Share of the updates that the clip norm should not cut, for quantile clipping.
        count_noise: Noise on the count of updates inside the clip norm, for quantile clipping.
        noise_multiplier: Noise standard deviation over sensitivity. By default the least noise with
            which all rounds stay within epsilon.
        rate: Learning rate of the local steps.
        optimiser: Optimiser of the local steps: "sgd", "momentum", "adam" or "adagrad".
        batch_size: Samples per local step, for steps without noise.
        prox: Strength of the pull towards the global model (FedProx).
        objective: "plain" (cross-entropy), "contrastive" or "perturbed"; the last two only where
            steps have no noise.
        mu: Weight of the contrastive loss.
        temperature: Temperature of the contrastive loss.
        share: Weight of the perturbed loss.
        perturbation: Standard deviation of the noise on the last layer inside the perturbed loss.
        controls: Use SCAFFOLD's control variates.
        weights: "size", "uniform", or by label histograms: "similarity" or "distance".
        histogram_noise: Noise multiplier of the released label histogram.
        server_rate: The server's learning rate eta_g along the mean update.
        server_momentum: Momentum of the server's step.

    Returns:
        The algorithm, ready for `dpfl.train`.

    Raises:
        DpflError: A word is unknown, or the parts have no proof together.
    """
    choose("where", where, dict.fromkeys(WHERE))
    bound = _clip(clipping, clip, where, haar_weights, quantile, count_noise)
    noise = _noise(clipping, noise_multiplier, haar_weights)
    sampling = poisson_cohort_of(cohort)
    loss = _objective(objective, mu, temperature, share, perturbation)
    return Algorithm(
        name="custom",
        local=LocalTraining(optimiser_of(optimiser, rate), batch_size, prox, loss),
        steps=_steps(steps, tau, gamma, phi),
        samples=Release(Poisson(sampling_rate), bound, noise) if where == "steps" else None,
        updates=UpdateRelease(All(), bound, noise, sensitivity_bound=2 * clip, protects="client")
        if where == "uploads"
        else None,
        clients=Release(sampling, bound, noise) if where == "round" else Release(sampling),
        weights=_weights(weights, histogram_noise, trusted=where == "round"),
        server=ServerUpdate(server_rate, server_momentum),
        controls=controls,
        claim=Claim("there is no paper"),
    )


def _steps(name: str, tau: int, gamma: float, phi: float) -> StepPolicy:
    parts: dict[str, StepPolicy] = {
        "fixed": FixedSteps(tau),
        "ali": AliSteps(gamma=gamma),
        "als": AlsSteps(phi),
    }
    return choose("steps", name, parts)


def _objective(
    name: str, mu: float, temperature: float, share: float, perturbation: float
) -> Objective:
    parts: dict[str, Objective] = {
        "plain": CrossEntropy(),
        "contrastive": Contrastive(mu, temperature),
        "perturbed": PerturbedScores(share, perturbation),
    }
    return choose("objective", name, parts)


def _clip(
    name: str, level: float, where: str, weights: str, quantile: float, count_noise: float
) -> Clip:
    parts: dict[str, Clip] = {
        "flat": Flat(level),
        "per-layer": PerLayer(level),
        "haar": HaarClip(level, "weighted", weights),
    }
    of_rounds: dict[str, Clip] = {
        "quantile": Quantile(level, quantile, count_noise=count_noise),
        "public-median": PublicMedian(level),
    }
    if where == "round":
        return choose("clipping", name, parts | of_rounds)
    return choose(f"clipping with where = {where!r} that is called", name, parts)


def _noise(
    clipping: str, multiplier: float | None, weights: str
) -> Gaussian | HaarNoise | Uncalibrated:
    return (
        haar_noise_of(multiplier, weights, False, ())
        if clipping == "haar"
        else noise_of(multiplier)
    )


def _weights(name: str, histogram_noise: float, trusted: bool) -> Weights:
    if name in KINDS:
        return HellingerWeights(name, LabelQuery(None if trusted else histogram_noise, trusted))
    return weights_of(name)
