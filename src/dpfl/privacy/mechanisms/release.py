"""A release: sample units, clip each unit's vector, sum, add noise, divide by a fixed number.

DP-SGD and DP-FedAvg are this one operation at two scales. In DP-SGD the units are the samples of a
client and a release is one step. In DP-FedAvg the units are the clients and a release is one round.
So there is one class, `Release`, a frozen composition of three parts:

    Release = Sampling x Clip x Noise

    >>> step = Release(Poisson(0.01), Flat(1.0), Gaussian(1.1))
    >>> step.sensitivity(), step.stddev()
    (1.0, 1.1)
    >>> accountant("pld").epsilon({step.event(60_000): 1000}, delta=1e-5)  # 1000 such steps
    1.515...

A release alone knows its sensitivity and its cost. Everything else asks it:

- `sensitivity()` is how far the weighted sum moves when one unit is added or removed: C w, for the
  clip norm C and the largest weight w. (A release of a client's whole update has a bound of its
  own, `UpdateRelease.sensitivity_bound`.)
- `stddev()` is the standard deviation z C w of the noise on every coordinate of the sum.
- `event(population)` is what the release costs, for an accountant and a ledger.
- `add_noise(total, rng)` makes the sum private. `into_sum` and `integer_sum` do the same where
  clients share the noise inside a secure sum.

The divisor is fixed before training (`divisor_for`). It is the expected size of a draw and not the
size that was drawn, which depends on private data. `release_checks.py` says which parts may be
together, and `update_release.py` has the release of a client's whole update.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dpfl.codec import part
from dpfl.deprecation import keep_old_names, renamed_keywords
from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import Event, gaussian
from dpfl.privacy.mechanisms.clips.clip import Clip, NoClip
from dpfl.privacy.mechanisms.noises.haar_release import HaarNoise
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noises.noise import Gaussian, Uncalibrated
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.noises.secure_noise import SecureGaussian
from dpfl.privacy.mechanisms.release_checks import check_parts
from dpfl.privacy.mechanisms.release_sums import ReleaseSums
from dpfl.privacy.mechanisms.sampling import All, Sampling

LONGER = 10.0
"""How many times the clip norm of steps a gradient may be long in a slope. With the clip of the
steps itself, the slope would be that of the clip.
"""


@keep_old_names(
    correlated="banded_noise",
    realised="divide_by_drawn",
    sums="noise_shares",
    multiplier="noise_multiplier",
    planned="uncalibrated",
    deviation="stddev",
    added="local_stddev",
    divides_by="divisor_for",
    of_slopes="for_slopes",
    over="for_rounds",
    fitted="for_model",
    secured="with_secure_noise",
    noised="add_noise",
    noised_number="add_noise_to_number",
    noised_count="add_noise_to_count",
    carrying="add_precomputed_noise",
    whole_sum="integer_sum",
    private="has_noise",
)
@part("release", optional=("divisor",))
@dataclass(frozen=True)
class Release(ReleaseSums):
    """Sampling x Clip x Noise. Without noise it is an ordinary sum, whose event has no guarantee.

    The noise is added in one place by default. With `shared_by`, so many clients each add a share
    where they are, for a server that only sees the sum. One of them can subtract its own share, so
    the noise counts as that of the others. With `noise_shares`, the server sees integers summed by
    secure aggregation, and the noise counts as that of the shares that it cannot know
    (docs/privacy.md).

    Attributes:
        sampling: Who takes part.
        clip: The bound on each unit's vector.
        noise: The noise on the sum; None for none.
        shared_by: How many clients share the noise, without secure aggregation.
        divide_by_drawn: Whether to divide by the batch that was drawn, as some papers print it. No
            accountant covers that.
        noise_shares: Who shares the noise of a secure sum.
        divisor: One number that all clients divide by, whatever they have.
    """

    sampling: Sampling = field(default_factory=All)
    clip: Clip = field(default_factory=NoClip)
    noise: Gaussian | Uncalibrated | HaarNoise | BandedNoise | None = None
    shared_by: int | None = None
    divide_by_drawn: bool = False
    noise_shares: NoiseShares | None = None
    divisor: float | None = None
    is_update = False
    event_is_proven = True
    """Whether `event` is proven for the noise that the class adds. A derived class is not, because
    it may count other noise than it adds, unless it says so itself."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "event_is_proven" not in vars(cls):
            cls.event_is_proven = False

    def __post_init__(self) -> None:
        check_parts(self)

    @property
    def sample_bound(self) -> float | None:
        """How far one sample moves the vector of its client, where that is stated; None where the
        clip bounds each unit's own vector.
        """
        return None

    @property
    def has_noise(self) -> bool:
        """Whether the release has noise."""
        return self.noise is not None

    @property
    def uncalibrated(self) -> bool:
        """Whether its noise is still to be calibrated from a budget."""
        return self.noise is not None and not self.noise.calibrated

    @property
    def secure(self) -> bool:
        """Whether its noise is on a grid, from a stream cipher."""
        return self.noise is not None and self.noise.on_grid

    @property
    def noise_multiplier(self) -> float:
        """The noise over the sensitivity, which an accountant counts with."""
        return self._whole_multiplier * math.sqrt(1 - 1 / self.shared_by if self.shared_by else 1.0)

    @property
    def _whole_multiplier(self) -> float:
        """The multiplier with the shares of all who add some."""
        return self.noise.effective(self.clip) if self.noise else 0.0

    @property
    def neighbours(self) -> str:
        """The neighbouring relation for which the event is proven."""
        return self.sampling.neighbours

    @property
    def noise_kind(self) -> Gaussian | HaarNoise | BandedNoise | None:
        """The noise, or what uncalibrated noise will be like."""
        return self.noise.kind if self.noise else None

    @renamed_keywords(multiplier="noise_multiplier")
    def with_noise(self, noise_multiplier: float) -> Release:
        """Sets the noise multiplier.

        Args:
            noise_multiplier: The multiplier as it is stated.

        Returns:
            The release with that noise, of the same kind.
        """
        kind = self.noise_kind
        return replace(
            self,
            noise=replace(kind, noise_multiplier=noise_multiplier)
            if kind
            else Gaussian(noise_multiplier),
        )

    @property
    def whole_run(self) -> bool:
        """Whether all rounds of a run are one release."""
        return self.noise_kind is not None and self.noise_kind.whole_run

    @property
    def banded_noise(self) -> BandedNoise | None:
        """Its noise if later rounds take it back; None otherwise."""
        return self.noise.banded_noise if self.noise else None

    def for_rounds(self, rounds: int, population: int) -> Release:
        """Fits the release to a run. Only noise that later rounds take back depends on it.

        Args:
            rounds: The rounds of the run.
            population: The number of clients.

        Returns:
            The release for that run.
        """
        kind = self.noise_kind
        if kind is None or not kind.whole_run:
            return self
        noise = kind.for_rounds(rounds, self.sampling.turns(population))
        return replace(self, noise=self._like(noise))

    def with_secure_noise(self) -> Release:
        """Puts the noise on a grid.

        Returns:
            The release with secure noise.

        Raises:
            DpflError: If there is no such form of its noise.
        """
        if self.noise_shares:  # whole numbers as it is
            return self
        if self.shared_by:
            raise DpflError(
                "Noise that clients share has no secure form; choose noise = 'server', or set "
                "privacy.noise = 'plain'."
            )
        if self.noise is None or not self.noise.has_secure_form:
            raise DpflError(
                "Noise on Haar coefficients, or that later rounds take back, has no secure form; "
                "choose another system, or set "
                "privacy.noise = 'plain'."
            )
        return replace(self, noise=SecureGaussian(self.noise.noise_multiplier))

    def for_model(self, ends: Sequence[int]) -> Release:
        """Fits the release to a model. Only Haar coefficients depend on it.

        Args:
            ends: Where each of the model's parameters ends.

        Returns:
            The release for that model.
        """
        clip = self.clip.for_model(ends)
        kind = self.noise_kind
        if kind is None:
            return replace(self, clip=clip)
        return replace(self, clip=clip, noise=self._like(kind.for_model(ends)))

    def _like(
        self, noise: Gaussian | HaarNoise | BandedNoise
    ) -> Uncalibrated | Gaussian | HaarNoise | BandedNoise:
        """Returns a noise, calibrated or not as this release's is."""
        return Uncalibrated(noise) if self.uncalibrated else noise

    def divisor_for(self, size: int) -> float:
        """Computes the fixed divisor of a noisy sum.

        Args:
            size: The number of units that the client declared.

        Returns:
            The expected size of a draw, unless all clients divide by one number.
        """
        return self.sampling.expected_size(size) if self.divisor is None else self.divisor

    @property
    def for_slopes(self) -> Release:
        """The release of a gradient's slope: ten times the clip norm, and noise to match, at the
        same cost.
        """
        return replace(self, clip=replace(self.clip, clip_norm=LONGER * self.clip.clip_norm))  # type: ignore[type-var]

    def sensitivity(self, largest_weight: float = 1.0) -> float:
        """Computes how far the weighted sum moves when one unit is added or removed: C w.

        When a unit is replaced, it moves by twice that.

        Args:
            largest_weight: The largest weight w of a unit.

        Returns:
            The L2 sensitivity.
        """
        return self.clip.clip_norm * largest_weight

    def weight_covering(self, excess: float) -> float:
        """Computes the weight whose noise covers a larger move of one unit: 1 + e / S.

        Args:
            excess: How much farther than the sensitivity S a unit can move the sum, e.

        Returns:
            The `largest_weight` for `stddev` and `add_noise`.
        """
        return 1 + excess / self.sensitivity()

    def event(self, population: int) -> Event:
        """Describes what one such release costs.

        Args:
            population: The number of units.

        Returns:
            The event. It has no guarantee if nothing covers the release: no noise, a divisor that
            was drawn, or a clip that private data decided.
        """
        is_covered = self.has_noise and not self.divide_by_drawn and not self.clip.follows_raw
        return (
            self.sampling.event(self.noise_multiplier, population) if is_covered else gaussian(0.0)
        )

    def stated_event(self, population: int) -> Event:
        """Describes what a paper counts the release as.

        Args:
            population: The number of units.

        Returns:
            The event with the multiplier that the paper states.
        """
        return (
            self.sampling.event(self.noise.noise_multiplier, population)
            if self.noise
            else gaussian(0.0)
        )

    def stddev(self, largest_weight: float = 1.0) -> float:
        """Computes the standard deviation of the noise on every coordinate (or coefficient) of the
        sum.

        Args:
            largest_weight: The largest weight w of a unit.

        Returns:
            z C w, with the vector's own z where a noisy count takes a part of the noise.
        """
        if self.noise is None:
            return 0.0
        noise_multiplier = self.clip.vector_multiplier(self.noise.noise_multiplier)
        return noise_multiplier * self.sensitivity(largest_weight)

    def mean_stddev(self, size: int) -> float:
        """Computes the standard deviation of the noise on every coordinate of the mean.

        Args:
            size: The number of units that the client declared.

        Returns:
            z C / D, with D the divisor of the sum.
        """
        return self.stddev() / self.divisor_for(size)
