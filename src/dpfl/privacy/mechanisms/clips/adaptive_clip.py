"""Clips whose clip norm follows what was observed in earlier rounds.

`Quantile` (Andrew et al. 2021) moves the clip norm towards a quantile of the clients' update norms.
Each client adds one bit, whether its update was inside the norm, and the noisy fraction b of these
bits changes the norm by C <- C exp(-eta (b - quantile)). The bits are paid for with the release.
`PublicMedian` takes the median of the norms of public clients, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpfl.codec import part
from dpfl.deprecation import keep_old_names
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.clips.clip import SMALLEST, Flat, VectorClip, check_clip_norm


def public_median(norms: Sequence[float], otherwise: float) -> float:
    """Computes the median of public norms.

    Args:
        norms: The norms of public units.
        otherwise: The clip norm to keep where the median is none.

    Returns:
        The median if it is a usable clip norm.
    """
    level = float(torch.tensor(list(norms), dtype=torch.float64).median())
    return level if level >= SMALLEST and math.isfinite(level) else otherwise


@keep_old_names(level="clip_norm")
@part("clip.quantile", learning_rate="rate", count_stddev="count_noise")
@dataclass(frozen=True)
class Quantile(VectorClip):
    """A clip norm that follows a quantile of the norms (Andrew et al. 2021) by a paid, noisy count.

    Each unit also sends b - 1/2, with b = 1 if it was not clipped. The sum of these gets noise of
    standard deviation `count_noise`. A unit moves it by 1/2. Both sums together are one Gaussian
    release with multiplier z if the vector's multiplier z_v satisfies z^-2 = z_v^-2 + (2
    count_noise)^-2.

    Attributes:
        clip_norm: The clip norm of this round.
        quantile: The share of units that should not be clipped.
        rate: The learning rate of the clip norm.
        count_noise: The standard deviation of the noise on the count.
    """

    clip_norm: float
    quantile: float = 0.5
    rate: float = 0.2
    count_noise: float = 4.0
    bounds = "norm"
    adapts_to = "count"

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)
        if not 0 < self.quantile < 1:
            raise DpflError(f"The quantile must lie between 0 and 1, not {self.quantile}.")
        if not 0 < self.count_noise < math.inf:
            raise DpflError(
                f"count_noise must be above 0, not {self.count_noise}; a twentieth of the cohort "
                "is usual."
            )
        if not 0 < self.rate < math.inf:
            raise DpflError(
                f"The rate of the quantile must be a positive number, not {self.rate}; 0.2 is "
                "usual."
            )

    def vector_multiplier(self, noise_multiplier: float) -> float:
        """Computes the multiplier z_v that is left for the vector: (z^-2 - (2
        count_noise)^-2)^(-1/2).

        Args:
            noise_multiplier: The multiplier z of the whole release.

        Returns:
            The multiplier of the vector's noise, larger than z.

        Raises:
            DpflError: If the count alone spends the whole release.
        """
        precision = noise_multiplier**-2 - (2 * self.count_noise) ** -2
        if precision <= 0:
            raise DpflError(
                f"count_noise = {self.count_noise} spends the whole release on the count of "
                "clipped units; "
                f"raise it above {noise_multiplier / 2:.3g} (a twentieth of a large cohort is "
                "usual), or use a fixed clip."
            )
        return float(precision**-0.5)

    def adapt(self, noisy_fraction: float) -> Quantile:
        """Updates C <- C exp(-rate (b - quantile)).

        Args:
            noisy_fraction: The noisy fraction b of units that were not clipped.

        Returns:
            The clip of the next round.
        """
        fraction = min(max(noisy_fraction, 0.0), 1.0)
        return replace(
            self, clip_norm=self.clip_norm * math.exp(-self.rate * (fraction - self.quantile))
        )


@keep_old_names(level="clip_norm")
@part("clip.public-median")
@dataclass(frozen=True)
class PublicMedian(VectorClip):
    """A clip norm equal to the median norm on public clients, found anew each round. It costs no
    privacy.

    Attributes:
        clip_norm: The clip norm of this round.
    """

    clip_norm: float = 1.0
    bounds = "norm"
    adapts_to = "public"

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)

    def adapt(self, public_norms: Sequence[float]) -> PublicMedian:
        """Takes the median of public norms as the clip norm.

        Args:
            public_norms: The norms of the public clients' updates.

        Returns:
            The clip of the next round.
        """
        return replace(self, clip_norm=public_median(public_norms, self.clip_norm))


@part("clip.share-of-mean")
@dataclass(frozen=True)
class ShareOfMean(Flat):
    """A share of the mean norm of an update in a run without privacy (clipping paper, section 2.2).

    Private data decides the clip norm, and no noise covers that. So a release with it has no
    guarantee.

    Attributes:
        share: The share of the mean norm.
        rounds: The rounds of the run without privacy; None for as many as the run.
    """

    share: float = 0.5
    rounds: int | None = None
    adapts_to = "raw"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < math.inf or (self.rounds is not None and self.rounds < 1):
            raise DpflError(
                "A clip from a run without privacy has a share above 0 of the mean, and 1 round of "
                "it or more."
            )

    @property
    def pilot_rounds(self) -> int | None:
        return self.rounds

    def adapt(self, norms: Sequence[float]) -> ShareOfMean:
        """Takes a share of the mean norm as the clip norm.

        Args:
            norms: The norms of the updates in the run without privacy.

        Returns:
            The clip of the run; unchanged if the mean is no number.
        """
        mean = math.fsum(norms) / len(norms) if norms else 0.0
        return replace(self, clip_norm=self.share * mean) if 0 < mean < math.inf else self
