"""The release of a client's whole update, with a bound on how far one unit moves it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from dpfl.codec import part
from dpfl.privacy.accounting.events import REPLACE
from dpfl.privacy.mechanisms.noises.noise import Gaussian
from dpfl.privacy.mechanisms.release import Release
from dpfl.privacy.mechanisms.release_checks import check_update_parts


class SizeDependentNoise(Protocol):
    """Noise that a paper chooses by how many samples a client has, and what it claims of it."""

    @property
    def noise_multiplier(self) -> float:
        """The noise over the sensitivity."""

    def for_size(self, samples: int) -> SizeDependentNoise:
        """Fits the noise to a client.

        Args:
            samples: The number of samples that the client declared.

        Returns:
            The noise for that client.
        """

    def claimed(self, releases: int) -> float:
        """Computes what the paper claims.

        Args:
            releases: The number of releases.

        Returns:
            The claimed epsilon.
        """


@part(
    "update-release",
    optional=("divisor", "by_samples"),
)
@dataclass(frozen=True)
class UpdateRelease(Release):
    """A client's whole update as one release, with noise for a bound on how far one unit can move
    it.

    Attributes:
        sensitivity_bound: How far one sample, or all that the client has, can move the update.
        protects: Whom the noise is for: a "sample" or the "client".
        by_samples: Noise that differs by the client's size. The noise in this release is then that
            of a usual client.
    """

    sensitivity_bound: float = math.inf
    protects: str = "sample"
    by_samples: SizeDependentNoise | None = None
    is_update = event_is_proven = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_update_parts(self)

    def with_client_noise(self, noise: SizeDependentNoise) -> UpdateRelease:
        """Sets the noise of one client.

        Args:
            noise: The noise for that client's size.

        Returns:
            The release of that client.
        """
        return replace(self, noise=Gaussian(noise.noise_multiplier), by_samples=None)

    @property
    def protects_client(self) -> bool:
        """Whether the noise is for all that the client has, and not for one sample of it."""
        return self.protects == "client"

    @property
    def sample_bound(self) -> float | None:
        """How far one sample moves the update; None where the client is protected as a whole."""
        return None if self.protects_client else self.sensitivity_bound

    @property
    def diameter(self) -> float:
        """How far two updates of one client can be apart: twice the clip norm."""
        return 2 * self.clip.clip_norm

    def covers(self, distance: float) -> bool:
        """Says whether the noise is made for a distance, but for the clip's own margin.

        Args:
            distance: How far one unit moves the update.

        Returns:
            Whether the sensitivity bound is at least as large.
        """
        return self.sensitivity_bound >= distance * (1 - 1e-9)

    @property
    def neighbours(self) -> str:
        """The neighbouring relation. Who uploads is seen, so a client can be replaced but not be
        absent.
        """
        return REPLACE if self.protects_client else super().neighbours

    def sensitivity(self, largest_weight: float = 1.0) -> float:
        return self.sensitivity_bound * largest_weight
