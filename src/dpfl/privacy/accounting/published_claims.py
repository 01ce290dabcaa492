"""Claims of papers by formulas of their own, and the noise that follows from them.

Nothing here guards a budget. The formulas give the noise of a system as it was published, and its
claim, which a statement sets beside the proven figure. What the same noise is worth by a proof is
in `dpfl_papers.theorems.claims`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.privacy.accounting.accountant import ACCOUNTANTS
from dpfl.privacy.accounting.calibration import check_target
from dpfl.privacy.accounting.events import gaussian


def gaussian_releases_epsilon(noise_multiplier: float, delta: float, releases: int = 1) -> float:
    """Computes the exact epsilon of Gaussian releases on all of the data.

    Args:
        noise_multiplier: The noise's standard deviation over the sensitivity.
        delta: The target delta.
        releases: The number of releases.

    Returns:
        Epsilon.
    """
    return ACCOUNTANTS["pld"].epsilon({gaussian(noise_multiplier): releases}, delta)


def classical_factor(delta: float) -> float:
    """Computes c = sqrt(2 ln(1.25 / delta)), the factor of the classical Gaussian mechanism.

    It is Theorem A.1 of Dwork and Roth (2014), for epsilon < 1.

    Args:
        delta: The target delta.

    Returns:
        The factor c. The noise is c / epsilon times the sensitivity.
    """
    return math.sqrt(2 * math.log(1.25 / delta))


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise DpflError(f"{name} must be a positive number, not {value}.")


@part("claim.hw-dpfl")
@dataclass(frozen=True)
class HellingerNoise:
    """The noise of HW-DPFL (Theorems 1 and 2) on a client's model after E steps on batches of b.

    Neighbours replace one record.

    Attributes:
        epsilon: The epsilon that the paper states for one round.
        delta: The delta of that statement.
        steps: The local steps E.
        batch_size: The batch size b.
        samples: The client's records n.
        rate: The learning rate eta.
        norm: The bound G on the gradient of a batch.
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
        """Fits the noise to a client, through gamma = E b / n.

        Args:
            samples: The client's declared number of records n.

        Returns:
            The same noise for that client.
        """
        return replace(self, samples=samples)

    @property
    def gamma(self) -> float:
        """gamma = E b / n, meant as the share of the records that a round draws."""
        return self.steps * self.batch_size / self.samples

    @property
    def sensitivity(self) -> float:
        """2 eta E G (equation 11)."""
        return 2 * self.rate * self.steps * self.norm

    @property
    def noise_multiplier(self) -> float:
        """The noise over the sensitivity: sqrt(8 log(1.25 gamma / delta)) gamma / epsilon."""
        return math.sqrt(8 * self._log) * self.gamma / self.epsilon

    @property
    def stddev(self) -> float:
        """sigma_{t,k} (equation 12)."""
        return self.noise_multiplier * self.sensitivity

    @property
    def _log(self) -> float:
        return math.log(1.25 * self.gamma / self.delta)

    def claimed(self, rounds: int) -> float:
        """Computes what Theorem 2 claims for all rounds (equation 15).

        Args:
            rounds: The number of rounds.

        Returns:
            The claimed epsilon.
        """
        return self.epsilon * math.sqrt(rounds * math.log(1 / self.delta) / (2 * self._log))


@part("claim.nbafl")
@dataclass(frozen=True)
class TwoWayNoise:
    """The noise of NbAFL (Wei et al. 2020) on clipped models: on the way up and, if needed, down.

    Attributes:
        epsilon: The epsilon that the paper states.
        delta: The delta of that statement.
        clip: The bound C on the norm of a model.
        smallest: The records m of the smallest client.
        exposures: How often L a client's upload may be seen.
        rounds: The rounds T.
        clients: The clients N.
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
        """The standard deviation of a client's noise: c L 2C / (m epsilon)."""
        return (
            classical_factor(self.delta)
            * self.exposures
            * 2
            * self.clip
            / (self.smallest * self.epsilon)
        )

    @property
    def downlink(self) -> float:
        """The server's standard deviation: 2 c C sqrt(T^2 - L^2 N) / (m N epsilon); 0 if T <= L
        sqrt(N).
        """
        missing = self.rounds**2 - self.exposures**2 * self.clients
        scale = (
            2
            * classical_factor(self.delta)
            * self.clip
            / (self.smallest * self.clients * self.epsilon)
        )
        return scale * math.sqrt(max(missing, 0))

    def claimed(self, releases: int) -> float:
        """Computes what the paper claims.

        sigma grows with L, so exposures add up, each at epsilon / L.

        Args:
            releases: The number of uploads.

        Returns:
            The claimed epsilon.
        """
        return self.epsilon * releases / self.exposures
