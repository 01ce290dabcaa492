"""Measures a whole run at sample level: canaries in a client, and an adversary that sees every
step.

There are two games: many runs with one canary in or out, and one run with many canaries (Steinke et
al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpfl.algorithms import Algorithm
from dpfl.audit.bounds import MeasuredEpsilon, one_run_epsilon
from dpfl.audit.measurements.canaries import WITH, WITHOUT, CanarySite, many_canaries, one_canary
from dpfl.audit.measurements.distinguish import Detector, detector, distinguish
from dpfl.privacy import Randomness

PILOT = 400
"""Rounds without a canary from which the adversary learns the noise."""


def likelihood(scores: np.ndarray, mu: float, rate: float) -> np.ndarray:
    """Computes log(1 - q + q exp(mu s - mu^2 / 2)).

    Args:
        scores: Scores s of the steps.
        mu: How far the canary moves a score.
        rate: Probability q that a step draws the canary.

    Returns:
        How much better a canary explains each score.
    """
    exponent = mu * scores - mu**2 / 2
    return exponent if rate >= 1 else np.logaddexp(np.log1p(-rate), np.log(rate) + exponent)


def many_runs(
    algorithm: Algorithm,
    rounds: int,
    delta: float,
    trials: int,
    confidence: float,
    randomness: Randomness,
) -> MeasuredEpsilon:
    """Runs a client many times with and without the canary.

    Args:
        algorithm: The system.
        rounds: Rounds per run.
        delta: Delta of the guarantee.
        trials: Number of runs in each world.
        confidence: Confidence of the bound.
        randomness: Source of all draws.

    Returns:
        The lower bound on the epsilon of a run.
    """
    clients = one_canary(algorithm)
    node = clients.node(randomness)
    try:
        pilot = randomness.generator("whole run pilot")
        outs = clients.play_rounds(node, WITHOUT, _place(pilot), PILOT)
        movement = clients.signal()
        detection = detector(outs, movement, outs.mean(0))
        mu = float(movement @ detection.direction)

        def mechanism(within: bool, trials: int, rng: np.random.Generator) -> np.ndarray:
            client = WITH if within else WITHOUT
            return np.stack(
                [
                    clients.play_rounds(node, client, _place(rng), rounds).ravel()
                    for _ in range(trials)
                ]
            )

        score = _total(detection, mu, clients, rounds)
        measurement = distinguish(
            mechanism, delta, trials, confidence, randomness, score, "whole run"
        )
    finally:
        node.close()
    return MeasuredEpsilon(
        measurement.epsilon,
        confidence,
        measurement.trials,
        f"Clopper-Pearson over runs of {rounds} rounds",
    )


def _place(rng: np.random.Generator) -> int:
    """Draws the number of a round that nothing else uses, because the round keys the noise."""
    return int(rng.integers(2**50))


def _total(
    detection: Detector, mu: float, clients: CanarySite, rounds: int
) -> Callable[[np.ndarray], np.ndarray]:
    rate = clients.rate if clients.steps == 1 else 1.0  # the sum of several draws: by its size

    def score(releases: np.ndarray) -> np.ndarray:
        each = releases.reshape(len(releases), rounds, -1)
        return likelihood(each @ detection.direction - detection.middle + mu / 2, mu, rate).sum(1)

    return score


def one_run(
    algorithm: Algorithm,
    rounds: int,
    delta: float,
    canaries: int,
    confidence: float,
    randomness: Randomness,
) -> MeasuredEpsilon:
    """Runs once with many canaries, each in or out by a fair coin.

    The adversary guesses for the canaries that it is surest of, a tenth in and a tenth out.

    Args:
        algorithm: The system.
        rounds: Rounds of the run.
        delta: Delta of the guarantee.
        canaries: Number of canaries.
        confidence: Confidence of the bound.
        randomness: Source of all draws.

    Returns:
        The lower bound on the epsilon of the run.
    """
    inside = randomness.generator("one run coins").random(canaries) < 0.5
    clients = many_canaries(algorithm, canaries, inside)
    node = clients.node(randomness)
    try:
        releases = clients.play_rounds(
            node, WITH, _place(randomness.generator("one run rounds")), rounds
        )
    finally:
        node.close()
    scores = _canary_scores(releases, clients, canaries)
    guesses_per_side = max(1, canaries // 10)
    order = np.argsort(scores)
    right = int(inside[order[-guesses_per_side:]].sum() + (~inside[order[:guesses_per_side]]).sum())
    epsilon = one_run_epsilon(canaries, 2 * guesses_per_side, right, delta, confidence)
    return MeasuredEpsilon(
        epsilon, confidence, canaries, f"one run, {right} of {2 * guesses_per_side} guesses right"
    )


def _canary_scores(releases: np.ndarray, clients: CanarySite, canaries: int) -> np.ndarray:
    """Scores each canary by the difference of the two weights of its pixel, over the usual size of
    such differences.
    """
    weights = releases.reshape(len(releases), 2, canaries)
    contrast = weights[:, 0] - weights[:, 1]
    middle = np.median(contrast, axis=1, keepdims=True)
    deviation = np.median(np.abs(contrast - middle), axis=1, keepdims=True) / 0.6745 + 1e-30
    standard = (contrast - middle) / deviation
    rate = clients.rate if clients.steps == 1 else 1.0
    mu = max(float(np.quantile(standard, 0.999)), 1.0) if rate < 1 else 1.0
    return likelihood(standard, mu, rate).sum(0)
