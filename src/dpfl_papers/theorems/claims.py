"""What noise that papers choose by formulas of their own is worth by a proof."""

from __future__ import annotations

import math

import numpy as np

from dpfl.errors import DpflError
from dpfl.privacy import accountant
from dpfl.privacy.accounting.events import Event, gaussian
from dpfl.privacy.accounting.published_claims import (
    HellingerNoise,
    TwoWayNoise,
    gaussian_releases_epsilon,
)
from dpfl.privacy.mechanisms.sampling import FixedSize
from dpfl.server.steps.estimates import check_range


def amplify(epsilon: float, rate: float) -> float:
    """Amplifies an epsilon by sampling: log(1 + q (e^epsilon - 1)), at q times the delta.

    This is Lemma 1 of HW-DPFL.

    Args:
        epsilon: The epsilon of the mechanism on a sample.
        rate: The sampling rate q.

    Returns:
        The epsilon on all of the data.
    """
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + epsilon)) if rate < 1 else epsilon


def hellinger_objections(noise: HellingerNoise) -> tuple[str, ...]:
    """Lists the conditions of Theorem 1 of HW-DPFL that do not hold.

    Args:
        noise: The noise of a round.

    Returns:
        One clause per violated condition. The theorem is proven where there are none.
    """
    violations = []
    if noise.epsilon >= 2 * noise.gamma:
        violations.append(
            f"epsilon {noise.epsilon:g} is not below 2 gamma = {2 * noise.gamma:g}, as its "
            "Gaussian mechanism needs"
        )
    if noise.gamma > 1:
        violations.append(f"gamma = E b / n = {noise.gamma:g} is above 1 and so no sampling rate")
    return tuple(violations)


def hellinger_event(noise: HellingerNoise) -> Event:
    """Describes one round of HW-DPFL: E b of n records drawn without replacement.

    Args:
        noise: The noise of the round.

    Returns:
        The event; a Gaussian one on all records where gamma is at least 1.
    """
    draws = noise.steps * noise.batch_size
    return (
        FixedSize(draws).event(2 * noise.noise_multiplier, noise.samples)
        if draws < noise.samples
        else gaussian(noise.noise_multiplier)
    )


def hellinger_proven_epsilon(noise: HellingerNoise, rounds: int = 1) -> float:
    """Bounds what the noise of HW-DPFL really costs.

    Sampling never harms, but Renyi divergences do not always see its gain. So the bound is the
    smaller of both figures.

    Args:
        noise: The noise of a round.
        rounds: The number of rounds.

    Returns:
        A proven epsilon at the delta of the noise.
    """
    plain = gaussian_releases_epsilon(noise.noise_multiplier, noise.delta, rounds)
    if noise.gamma >= 1:
        return plain
    if rounds > 1:
        return min(plain, accountant("rdp").epsilon({hellinger_event(noise): rounds}, noise.delta))
    inner = noise.delta / noise.gamma  # the Gaussian sees the record with probability gamma only
    return (
        amplify(gaussian_releases_epsilon(noise.noise_multiplier, inner), noise.gamma)
        if inner < 1
        else 0.0
    )


def hellinger_completed_claim(noise: HellingerNoise, rounds: int) -> float:
    """Computes Theorem 2 of HW-DPFL with the term that the step from (22) to (23) drops.

    Args:
        noise: The noise of a round.
        rounds: The number of rounds.

    Returns:
        Epsilon by the completed formula. It is the paper's argument, not a proof.
    """
    log = math.log(1.25 * noise.gamma / noise.delta)
    share = rounds * noise.epsilon**2 / (2 * log)
    return math.sqrt(share * (math.log(1 / noise.delta) + share / 4))


def two_way_proven_epsilon(noise: TwoWayNoise, sensitivity: float | None = None) -> float:
    """Computes what the L noisy uploads of NbAFL cost one record that is replaced by another.

    The paper puts the sensitivity at 2C / m, as if a model were a mean over records. A model of
    which only |w| <= C is known moves by up to 2C, which is the default here.

    Args:
        noise: The noise of the uploads.
        sensitivity: How far one record moves an upload; None for 2C.

    Returns:
        The epsilon at the delta of the noise.
    """
    movement = 2 * noise.clip if sensitivity is None else sensitivity
    check_range("The sensitivity", movement, 0, strict=True)
    return gaussian_releases_epsilon(noise.uplink / movement, noise.delta, noise.exposures)


def haar_sigma(noise_multiplier: float, size: int) -> float:
    """Computes the sigma_Haar that Lemma 2 of the wavelet paper equates with plain noise.

    Args:
        noise_multiplier: The multiplier of the plain noise.
        size: The number m of coefficients, a power of two.

    Returns:
        z sqrt(2 / (2 + log2 m)).
    """
    check_range("The noise multiplier", noise_multiplier, 0, strict=True)
    _check_size(size)
    return noise_multiplier * math.sqrt(2 / (2 + math.log2(size)))


def haar_claimed_multiplier(sigma: float, size: int) -> float:
    """Computes the multiplier that Lemmas 1 and 2 claim: the inverse of `haar_sigma`.

    `Haar.effective_multiplier` computes the true one.

    Args:
        sigma: The noise on weighted coefficients, over the clip norm.
        size: The number m of coefficients, a power of two.

    Returns:
        sigma sqrt((2 + log2 m) / 2).
    """
    check_range("sigma", sigma, 0, strict=True)
    _check_size(size)
    return sigma * math.sqrt((2 + math.log2(size)) / 2)


def _check_size(size: int) -> None:
    if size < 1 or size & (size - 1):
        raise DpflError(f"A Haar transform has a power of two of coefficients, not {size}.")
