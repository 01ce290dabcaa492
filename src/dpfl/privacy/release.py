"""A release: sample units, clip each unit's vector, sum, add noise, divide by a fixed number.

DP-SGD and DP-FedAvg are this one operation at two scales. A release alone knows its sensitivity and its cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from dpfl.errors import DpflError
from dpfl.privacy.clip import Clip, Model, NoClip, Quantile
from dpfl.privacy.events import Event, gaussian
from dpfl.privacy.noise import Gaussian, Planned, gaussian_vector
from dpfl.privacy.sampling import All, Sampling


@dataclass(frozen=True)
class Release:
    """Sampling x Clip x Noise. Without noise it is an ordinary sum, and its event says that it protects nothing.

    `shared_by` clients each add their share of the noise where they are, for a server that only ever sees the sum (secure
    aggregation); by default the noise is added in one place.
    """

    sampling: Sampling = field(default_factory=All)
    clip: Clip = field(default_factory=NoClip)
    noise: Gaussian | Planned | None = None
    shared_by: int | None = None

    def __post_init__(self) -> None:
        if self.noise is not None and isinstance(self.clip, NoClip):
            raise DpflError("Noise without a clip protects nothing; choose a clip, for example a flat level of 1.0.")
        if self.noise is not None and isinstance(self.clip, Model):
            raise DpflError("Noise on clipped models has no proof here; clip the difference instead.")
        if self.shared_by is not None and self.shared_by < 1:
            raise DpflError(f"Noise must be shared by at least 1 client, not {self.shared_by}.")
        if self.shared_by is not None and isinstance(self.clip, Quantile):
            raise DpflError("Quantile clipping needs its noise at the server; choose noise = 'server' or a fixed clip.")

    @property
    def private(self) -> bool:
        return self.noise is not None

    @property
    def multiplier(self) -> float:
        """Noise over sensitivity, for the whole release."""
        if isinstance(self.noise, Planned):
            raise DpflError("The noise of this release is not planned yet; give a noise multiplier, or epsilon and rounds.")
        return self.noise.multiplier if self.noise else 0.0

    def with_noise(self, multiplier: float) -> Release:
        return replace(self, noise=Gaussian(multiplier))

    def sensitivity(self, largest_weight: float = 1.0) -> float:
        """How far the weighted sum moves, at most, when one unit is added or removed; twice that when one is replaced."""
        return self.clip.level * largest_weight

    def event(self, population: int) -> Event:
        """What one such release costs, for a population of this many units."""
        return self.sampling.event(self.multiplier, population) if self.private else gaussian(0.0)

    def deviation(self, largest_weight: float = 1.0) -> float:
        """The standard deviation of the noise on every coordinate of the weighted sum."""
        if not self.private:
            return 0.0
        multiplier = self.clip.vector_multiplier(self.multiplier) if isinstance(self.clip, Quantile) else self.multiplier
        return multiplier * self.sensitivity(largest_weight)

    def noised(self, total: Tensor, rng: np.random.Generator, largest_weight: float = 1.0, share: float = 1.0) -> Tensor:
        """The sum with its noise, in new memory; `share` is the part of the variance to be added here, the rest elsewhere."""
        deviation = self.deviation(largest_weight) * share**0.5
        return gaussian_vector(total.numel(), deviation, rng).add_(total) if deviation else total.clone()
