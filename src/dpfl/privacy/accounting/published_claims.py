"""What papers claim of their privacy by a formula of their own, and what the same noise is worth by
an accountant.

Nothing here guards a budget. The formulas serve to run a system as it was published, and to set its
claim beside the truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.privacy.accounting.accountant import ACCOUNTANTS
from dpfl.privacy.accounting.calibration import check_target
from dpfl.privacy.accounting.events import Event, gaussian
from dpfl.privacy.mechanisms.sampling import FixedSize


def gaussian_releases_epsilon(noise_multiplier: float, delta: float, releases: int = 1) -> float:
    """Exact epsilon of Gaussian releases on all of the data."""
    return ACCOUNTANTS["pld"].epsilon({gaussian(noise_multiplier): releases}, delta)


def amplified(epsilon: float, rate: float) -> float:
    """log(1 + rate (e^epsilon - 1)), at rate times the delta: a mechanism on a random share of
    records (HW-DPFL, Lemma 1).
    """
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + epsilon)) if rate < 1 else epsilon


def classical_factor(delta: float) -> float:
    """c = sqrt(2 ln(1.25 / delta)): the classical Gaussian mechanism has c / epsilon times the
    sensitivity, for epsilon < 1.
    """
    return math.sqrt(2 * math.log(1.25 / delta))


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise DpflError(f"{name} must be a positive number, not {value}.")


@part("claim.hw-dpfl")
@dataclass(frozen=True)
class HellingerNoise:
    """HW-DPFL, Theorems 1 and 2: noise on a client's model after `steps` local steps (E) on batches
    of `batch_size` (b).

    `samples` is n_k, `rate` the learning rate, `norm` the bound G on the gradient of a batch.
    Neighbours replace one record.
    """

    epsilon: float
    delta: float
    steps: int
    batch_size: int
    samples: int
    rate: float = 1.0
    norm: float = 1.0

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)
        _check_positive(
            steps=self.steps,
            batch_size=self.batch_size,
            samples=self.samples,
            rate=self.rate,
            norm=self.norm,
        )
        if 1.25 * self.gamma <= self.delta:
            raise DpflError(
                f"Theorem 1 has no noise for delta {self.delta:g} above 1.25 gamma; draw more "
                "samples, or lower delta."
            )

    def for_size(self, samples: int) -> HellingerNoise:
        """sigma_{t,k} and the claim are each client's own, through gamma = E b / n_k."""
        return replace(self, samples=samples)

    @property
    def gamma(self) -> float:
        """E b / n, meant as the share of the records that a round draws."""
        return self.steps * self.batch_size / self.samples

    @property
    def sensitivity(self) -> float:
        """2 eta E G (11)."""
        return 2 * self.rate * self.steps * self.norm

    @property
    def noise_multiplier(self) -> float:
        """Noise over sensitivity: sqrt(8 log(1.25 gamma / delta)) gamma / epsilon."""
        return math.sqrt(8 * self._log) * self.gamma / self.epsilon

    @property
    def stddev(self) -> float:
        """sigma_{t,k} (12)."""
        return self.noise_multiplier * self.sensitivity

    @property
    def _log(self) -> float:
        return math.log(1.25 * self.gamma / self.delta)

    def objections(self) -> tuple[str, ...]:
        """Conditions of Theorem 1 that do not hold; it is proven where there are none."""
        found = []
        if self.epsilon >= 2 * self.gamma:
            found.append(
                f"epsilon {self.epsilon:g} is not below 2 gamma = {2 * self.gamma:g}, as its "
                "Gaussian mechanism needs"
            )
        if self.gamma > 1:
            found.append(f"gamma = E b / n = {self.gamma:g} is above 1 and so no sampling rate")
        return tuple(found)

    def event(self) -> Event:
        """One round: E b of n records drawn without replacement; all of them where gamma is 1 or
        more.
        """
        drawn = self.steps * self.batch_size
        return (
            FixedSize(drawn).event(2 * self.noise_multiplier, self.samples)
            if drawn < self.samples
            else gaussian(self.noise_multiplier)
        )

    def proven_epsilon(self, rounds: int = 1) -> float:
        """What the noise really costs at delta, at most: sampling never harms, but RDP does not
        always see its gain.
        """
        plain = gaussian_releases_epsilon(self.noise_multiplier, self.delta, rounds)
        if self.gamma >= 1:
            return plain
        if rounds > 1:
            return min(plain, ACCOUNTANTS["rdp"].epsilon({self.event(): rounds}, self.delta))
        inner = self.delta / self.gamma  # the Gaussian sees the record with probability gamma only
        return (
            amplified(gaussian_releases_epsilon(self.noise_multiplier, inner), self.gamma)
            if inner < 1
            else 0.0
        )

    def claimed(self, rounds: int) -> float:
        """Theorem 2 (15), the total over rounds."""
        return self.epsilon * math.sqrt(rounds * math.log(1 / self.delta) / (2 * self._log))

    def completed(self, rounds: int) -> float:
        """Theorem 2 with the term that the step from (22) to (23) drops; still a formula of the
        paper, not a proof.
        """
        share = rounds * self.epsilon**2 / (2 * self._log)
        return math.sqrt(share * (math.log(1 / self.delta) + share / 4))


@part("claim.nbafl")
@dataclass(frozen=True)
class TwoWayNoise:
    """NbAFL (Wei et al. 2020): noise on clipped models on the way up and, where that is not enough,
    on the way down.

    `smallest` is m, the records of the smallest client; `exposures` L, how often a client's upload
    may be seen; `rounds` T.
    """

    epsilon: float
    delta: float
    clip: float
    smallest: int
    exposures: int
    rounds: int
    clients: int

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)
        _check_positive(
            clip=self.clip,
            smallest=self.smallest,
            exposures=self.exposures,
            rounds=self.rounds,
            clients=self.clients,
        )

    @property
    def uplink(self) -> float:
        """c L 2C / (m epsilon)."""
        return (
            classical_factor(self.delta)
            * self.exposures
            * 2
            * self.clip
            / (self.smallest * self.epsilon)
        )

    @property
    def downlink(self) -> float:
        """2 c C sqrt(T^2 - L^2 N) / (m N epsilon) where T > L sqrt(N), and none otherwise."""
        missing = self.rounds**2 - self.exposures**2 * self.clients
        scale = (
            2
            * classical_factor(self.delta)
            * self.clip
            / (self.smallest * self.clients * self.epsilon)
        )
        return scale * math.sqrt(max(missing, 0))

    def claimed(self, releases: int) -> float:
        """sigma grows with L: exposures add up, each at epsilon / L."""
        return self.epsilon * releases / self.exposures

    def proven_epsilon(self, sensitivity: float | None = None) -> float:
        """What the L noisy uploads cost one record, replaced by another, at delta.

        The paper puts the sensitivity at 2C / m, as if a model were a mean over records. One of
        which only |w| <= C is known moves by up to 2C: the default here.
        """
        moved = 2 * self.clip if sensitivity is None else sensitivity
        _check_positive(sensitivity=moved)
        return gaussian_releases_epsilon(self.uplink / moved, self.delta, self.exposures)


def _check_size(size: int) -> None:
    if size < 1 or size & (size - 1):
        raise DpflError(f"A Haar transform has a power of two of coefficients, not {size}.")


def haar_sigma(noise_multiplier: float, size: int) -> float:
    """sigma_Haar that Lemma 2 of the wavelet paper says to be as private as plain noise of this
    multiplier, for m = size.
    """
    _check_positive(noise_multiplier=noise_multiplier)
    _check_size(size)
    return noise_multiplier * math.sqrt(2 / (2 + math.log2(size)))


def haar_claimed_multiplier(sigma: float, size: int) -> float:
    """The inverse: the multiplier that Lemmas 1 and 2 claim for noise of deviation sigma C / W;
    `Haar` knows the true one.
    """
    _check_positive(sigma=sigma)
    _check_size(size)
    return sigma * math.sqrt((2 + math.log2(size)) / 2)
