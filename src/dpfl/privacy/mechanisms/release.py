"""A release: sample units, clip each unit's vector, sum, add noise, divide by a fixed number.

DP-SGD and DP-FedAvg are this one operation at two scales. A release alone knows its sensitivity and
its cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.accounting.events import REPLACE, Event, gaussian
from dpfl.privacy.mechanisms.adaptive_clip import Quantile
from dpfl.privacy.mechanisms.clip import Clip, NoClip
from dpfl.privacy.mechanisms.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noise import FlooredGaussian, Gaussian, Uncalibrated, check_stddev
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.sampling import All, Cyclic, Sampling
from dpfl.privacy.mechanisms.secure_noise import SecureGaussian, noisy_number, secure_sum

ABSORBED = 2.0**-20
"""Noise of a smaller share of the sum has fewer than 4 of float32's 24 bits left."""

LONGER = 10.0
"""How many times the clip of steps a gradient may be long in a slope: clipped as in steps, its
slope would be the clip's.
"""

if TYPE_CHECKING:
    from torch import Tensor


@part("release", optional=("divisor",))
@dataclass(frozen=True)
class Release:
    """Sampling x Clip x Noise. Without noise it is an ordinary sum, and its event says that it
    protects nothing.

    `shared_by` clients each add their share of the noise where they are, for a server that only
    ever sees the sum (secure aggregation); one of them can subtract its own, so the noise counts as
    that of the others. By default the noise is added in one place. With `sums` the server sees
    whole numbers summed over clients by secure aggregation, and the noise is that of the shares
    that it cannot know (docs/privacy.md). `realised` divides by the batch that was drawn, and
    leaves an empty one out, as some papers print it; no accountant covers that. A `divisor` is a
    number for all clients, whatever they have.
    """

    sampling: Sampling = field(default_factory=All)
    clip: Clip = field(default_factory=NoClip)
    noise: Gaussian | Uncalibrated | HaarNoise | BandedNoise | None = None
    shared_by: int | None = None
    divide_by_drawn: bool = False
    noise_shares: NoiseShares | None = None
    divisor: float | None = None
    of_models = False

    def __post_init__(self) -> None:
        if self.private and self.clip.bounds == "nothing":
            raise DpflError(
                "Noise without a clip protects nothing; choose a clip, for example a flat level of "
                "1.0."
            )
        if self.private and self.clip.bounds == "model" and not self.of_models:
            raise DpflError(
                "Noise on clipped models has no proof here; clip the difference instead."
            )
        if (
            self.private
            and self.clip.bounds == "coefficients"
            and not isinstance(self._kind, HaarNoise)
        ):
            raise DpflError(
                "A clip of Haar coefficients does not bound the vector itself; use Haar noise with "
                "it."
            )
        if self.shared_by is not None and self.shared_by < 2:
            raise DpflError(
                f"Noise must be shared by at least 2 clients, not {self.shared_by}: each of them "
                "can subtract its own share."
            )
        if isinstance(self._kind, BandedNoise) != isinstance(self.sampling, Cyclic):
            raise DpflError(
                "Noise that later rounds take back needs clients in fixed turns, and they need "
                "such noise."
            )
        if self.shared_by is not None and self.clip.adapts_to == "count":
            raise DpflError(
                "Quantile clipping needs its noise at the server, or privacy.aggregation = "
                "'secure'; choose noise = 'server' "
                "for both, or a fixed clip."
            )
        if self.whole_run and (self.clip.adapts_to or self.shared_by):
            raise DpflError(
                "Noise that later rounds take back needs one clip level for all of them, and is "
                "made in one place."
            )
        if self.noise_shares is not None:
            self._check_sums()
        if self.divisor is not None and (self.divide_by_drawn or not 0 < self.divisor < math.inf):
            raise DpflError(
                "A noisy sum is divided by a number above 0 or by what was drawn, not by "
                f"{self.divisor}."
            )
        if self.clip.adapts_to == "count" and isinstance(self._kind, HaarNoise):
            raise DpflError(
                "The count of quantile clipping is one release with Gaussian noise; use that, or a "
                "fixed clip."
            )

    def _check_sums(self) -> None:
        if (
            self.noise is None
            or self.shared_by
            or self.divide_by_drawn
            or self.divisor
            or self.of_models
        ):
            raise DpflError(
                "A secure sum is of clipped vectors with noise that all clients share, divided by "
                "nothing that was drawn."
            )
        if isinstance(self._kind, (BandedNoise, FlooredGaussian)):
            raise DpflError(
                "A secure sum is not proven for noise that later rounds take back, or that follows "
                "what was released; set "
                "privacy.aggregation = 'plain'."
            )
        haar = isinstance(self._kind, HaarNoise)
        if not (
            isinstance(self.clip, HaarClip) and self.clip.bound == "weighted"
            if haar
            else self.clip.bounds in ("norm", "layers")
        ):
            raise DpflError(
                "In a secure sum the clip must bound what the noise is added to; choose a flat "
                "one, or variant = 'sound'."
            )
        if self.clip.adapts_to not in ("", "count"):
            raise DpflError(
                "A clip that follows public clients is not made for secure sums; choose a fixed "
                "one, or a quantile, or set "
                "privacy.aggregation = 'plain'."
            )

    @property
    def private(self) -> bool:
        return self.noise is not None

    @property
    def uncalibrated(self) -> bool:
        """Whether its noise is still to be found from a budget."""
        return isinstance(self.noise, Uncalibrated)

    @property
    def secure(self) -> bool:
        return isinstance(self.noise, SecureGaussian)

    @property
    def noise_multiplier(self) -> float:
        """Noise over sensitivity, for the whole release: what an accountant counts with."""
        return self._whole_multiplier * math.sqrt(1 - 1 / self.shared_by if self.shared_by else 1.0)

    @property
    def _whole_multiplier(self) -> float:
        """With the shares of all who add some."""
        if isinstance(self.noise, HaarNoise):
            return self.noise.effective(self.clip)
        if isinstance(self.noise, FlooredGaussian):
            return self.noise.floor
        return self.noise.noise_multiplier if self.noise else 0.0

    @property
    def neighbours(self) -> str:
        """Whom the event is proven for."""
        return self.sampling.neighbours

    @property
    def _kind(self) -> Gaussian | HaarNoise | BandedNoise | None:
        """The noise, or what planned noise is to be like."""
        return self.noise.like if isinstance(self.noise, Uncalibrated) else self.noise

    def with_noise(self, noise_multiplier: float) -> Release:
        kind = self._kind
        return replace(
            self,
            noise=replace(kind, noise_multiplier=noise_multiplier)
            if kind
            else Gaussian(noise_multiplier),
        )

    @property
    def whole_run(self) -> bool:
        """Whether all rounds are one release."""
        return isinstance(self._kind, BandedNoise)

    @property
    def correlated(self) -> BandedNoise | None:
        """Its noise, where later rounds take it back."""
        return self.noise if isinstance(self.noise, BandedNoise) else None

    def for_rounds(self, rounds: int, population: int) -> Release:
        """The release for a run of so many rounds; only noise that is taken back later has to
        know.
        """
        kind = self._kind
        if not isinstance(kind, BandedNoise) or not isinstance(self.sampling, Cyclic):
            return self
        found = kind.for_rounds(rounds, self.sampling.turns(population))
        return replace(
            self, noise=Uncalibrated(found) if isinstance(self.noise, Uncalibrated) else found
        )

    def with_secure_noise(self) -> Release:
        """The release with its noise on a grid; refused where there is no such form of the
        noise.
        """
        if self.noise_shares:  # whole numbers as it is
            return self
        if self.shared_by:
            raise DpflError(
                "Noise that clients share has no secure form; choose noise = 'server', or set "
                "privacy.noise = 'plain'."
            )
        if not isinstance(self.noise, Gaussian):
            raise DpflError(
                "Noise on Haar coefficients, or that later rounds take back, has no secure form; "
                "choose another system, or set "
                "privacy.noise = 'plain'."
            )
        return replace(self, noise=SecureGaussian(self.noise.noise_multiplier))

    def for_model(self, ends: Sequence[int]) -> Release:
        """The release for a model whose parameters end here; only Haar coefficients have to
        know.
        """
        clip = self.clip.for_model(ends) if isinstance(self.clip, HaarClip) else self.clip
        noise = self._kind
        if not isinstance(noise, HaarNoise):
            return replace(self, clip=clip)
        found = noise.for_model(ends)
        return replace(
            self,
            clip=clip,
            noise=Uncalibrated(found) if isinstance(self.noise, Uncalibrated) else found,
        )

    def divisor_for(self, size: int) -> float:
        """Of a client that declared so many units: what it expects to draw, unless all divide by
        one number.
        """
        return self.sampling.expected_size(size) if self.divisor is None else self.divisor

    @property
    def for_slopes(self) -> Release:
        """For a slope of gradients: with a clip that few raw ones reach, and with noise to match,
        at the same cost.
        """
        return replace(self, clip=replace(self.clip, clip_norm=LONGER * self.clip.clip_norm))  # type: ignore[type-var]

    def sensitivity(self, largest_weight: float = 1.0) -> float:
        """How far the weighted sum moves, at most, when one unit is added or removed; twice that
        when one is replaced.
        """
        return self.clip.clip_norm * largest_weight

    def event(self, population: int) -> Event:
        """What one such release costs, for a population of this many units; no noise covers a clip
        that is raw itself.
        """
        covered = self.private and not self.divide_by_drawn and self.clip.adapts_to != "raw"
        return self.sampling.event(self.noise_multiplier, population) if covered else gaussian(0.0)

    def stated_event(self, population: int) -> Event:
        """What a paper counts it as: by the multiplier that it states."""
        return (
            self.sampling.event(self.noise.noise_multiplier, population)
            if self.noise
            else gaussian(0.0)
        )

    def stddev(self, largest_weight: float = 1.0) -> float:
        """The standard deviation of the noise on every coordinate (or coefficient) of the weighted
        sum.
        """
        if self.noise is None:
            return 0.0
        stated = self.noise.noise_multiplier
        noise_multiplier = (
            self.clip.vector_multiplier(stated) if isinstance(self.clip, Quantile) else stated
        )
        return noise_multiplier * self.sensitivity(largest_weight)

    def integer_sum(self, bound: float, clients: int) -> IntegerSum:
        """How so many clients send vectors whose numbers are within the bound, each with its share
        of the noise.
        """
        assert self.noise_shares is not None
        return IntegerSum(self.local_stddev, bound, clients)

    def outward(self, vector: Tensor) -> Tensor:
        """A clipped vector as it goes into a secure sum: what the clip bounds, and the noise is
        added to.
        """
        return self.noise.outward(vector) if isinstance(self.noise, HaarNoise) else vector

    @property
    def count_unit(self) -> float | None:
        """In a secure sum whose clip follows a count: what one of the count is beside the vector,
        so that noise of the vector's deviation on it is the noise of the count. None where nothing
        is counted."""
        return (
            self.stddev() / self.clip.count_noise
            if self.noise_shares and isinstance(self.clip, Quantile)
            else None
        )

    def into_sum(self, vector: Tensor, inside: bool | None = None) -> Tensor:
        """What a unit adds to a secure sum: its clipped vector, and where they are counted b - 1/2
        beside it, 0 if it was not drawn (`inside` is None). All of it is one vector, which a unit
        moves by its deviation over the multiplier at most."""
        unit = self.count_unit
        if unit is None:
            return self.outward(vector)
        counted = torch.tensor(
            [0.0 if inside is None else (inside - 0.5) * unit], dtype=torch.float64
        )
        return torch.cat([self.outward(vector).double(), counted])

    def inward(self, total: Tensor) -> Tensor:
        return self.noise.inward(total) if isinstance(self.noise, HaarNoise) else total

    @property
    def local_stddev(self) -> float:
        """The deviation of the noise that is added in one place."""
        whole = self.stddev() * (self.noise.share if isinstance(self.noise, HaarNoise) else 1.0)
        return self.noise_shares.share(whole) if self.noise_shares else whole

    def energy(self, size: int) -> float:
        """E |noise|^2 of a sum of this size, in units of deviation^2."""
        return self.noise.energy(size) if isinstance(self.noise, HaarNoise) else float(size)

    def add_noise(
        self,
        total: Tensor,
        rng: np.random.Generator,
        largest_weight: float = 1.0,
        share: float = 1.0,
    ) -> Tensor:
        """The sum with its noise, in new memory; `share` is the part of the variance to be added
        here, the rest elsewhere.

        A float64 sum is rounded to float32 after the noise is in it: what is rounded before is part
        of the sensitivity.
        """
        if self.noise is None or not share:
            return total.to(torch.float32, copy=True)
        stddev = self.stddev(largest_weight)
        if self.secure:
            return secure_sum(total, stddev, stddev / self.sensitivity(largest_weight), rng)
        noise = self.noise.vector(total.numel(), stddev * share**0.5, rng)
        # Both as float64, and rounded: numpy does so in pieces that stay in the cache, torch in a
        # copy of the whole.
        np.add(noise.numpy(), total.numpy(), out=noise.numpy(), casting="same_kind")
        return noise

    def add_precomputed_noise(self, total: Tensor, noise: Tensor) -> Tensor:
        """The sum with noise that was made for it before."""
        return (total + noise).float()

    def add_noise_to_number(
        self, value: float, rng: np.random.Generator, largest_weight: float = 1.0
    ) -> float:
        """One number that a unit moves as far as the weighted sum, with noise of the same
        deviation.
        """
        stddev = self.stddev(largest_weight)
        return noisy_number(
            value, stddev, stddev / self.sensitivity(largest_weight), rng, self.secure
        )

    def add_noise_to_count(self, total: float, rng: np.random.Generator) -> float:
        """The sum of b - 1/2 for quantile clipping with its share of the noise: a unit moves it by
        1/2.
        """
        assert isinstance(self.clip, Quantile)
        return noisy_number(
            total, self.clip.count_noise, 2 * self.clip.count_noise, rng, self.secure
        )

    def check_not_absorbed(self, units: float, longest: float) -> None:
        """A float32 sum of so many units, each `longest` at most, must not be so large that its
        rounding swallows the noise.
        """
        if self.noise is None:
            return
        check_stddev(self.local_stddev)
        if self.local_stddev < ABSORBED * units * longest:
            raise DpflError(
                f"Noise of multiplier {self.noise_multiplier:g} is lost in the rounding of a "
                f"float32 sum of {units:g} clipped units; "
                "raise it above "
                f"{ABSORBED * units * longest * self.noise_multiplier / self.local_stddev:.2g}, or "
                "draw "
                "fewer at a time."
            )


class SizeDependentNoise(Protocol):
    """Noise that a paper makes by how many samples a client has, and what it claims of it."""

    @property
    def noise_multiplier(self) -> float: ...

    def for_size(self, samples: int) -> SizeDependentNoise:
        """For a client that declared so many."""

    def claimed(self, releases: int) -> float: ...


@part(
    "update-release",
    optional=("divisor", "by_samples"),
)
@dataclass(frozen=True)
class UpdateRelease(Release):
    """A client's whole update as one release: `moves` is how far one sample, or all that the client
    has, can move it.

    With `by_samples` the noise is each client's own (`own`); what stands here is then that of a
    usual one.
    """

    sensitivity_bound: float = math.inf
    protects: str = "sample"
    by_samples: SizeDependentNoise | None = None
    of_models = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.sensitivity_bound < math.inf:
            raise DpflError(
                "The noise of an upload needs a bound on how far one unit moves it; give a "
                "positive number."
            )
        if self.protects not in ("sample", "client"):
            raise DpflError(
                f"The noise of an upload protects a sample or a client, not {self.protects!r}."
            )
        if self.sampling != All():
            raise DpflError(
                "Nothing is drawn for an upload, so nothing is gained by sampling; give it All() "
                "in its place."
            )
        if self.shared_by is not None or self.divide_by_drawn or self.divisor is not None:
            raise DpflError(
                "An upload has its noise, and is divided by nothing: a divisor, shared_by and "
                "divide_by_drawn are not for it."
            )
        if isinstance(self._kind, HaarNoise):
            raise DpflError(
                "How far an upload moves bounds no Haar coefficients; put their noise in steps, or "
                "on the sum of a round."
            )
        if self.protects == "client" and not self.covers(self.diameter):
            raise DpflError(
                f"Two updates inside the clip can be twice its norm apart, but sensitivity_bound = "
                f"{self.sensitivity_bound:g}; give at least "
                f"{self.diameter:g}."
            )

    def with_client_noise(self, noise: SizeDependentNoise) -> UpdateRelease:
        """With the noise of one client."""
        return replace(self, noise=Gaussian(noise.noise_multiplier), by_samples=None)

    @property
    def diameter(self) -> float:
        """How far two uploads of one client can be apart, whatever its data: twice the clip."""
        return 2 * self.clip.clip_norm

    def covers(self, distance: float) -> bool:
        """Whether the noise is made for so far a move; the last digits are the clip's own
        margin.
        """
        return self.sensitivity_bound >= distance * (1 - 1e-9)

    @property
    def neighbours(self) -> str:
        """Who uploads is seen, so a client can be in another's place, and not be absent."""
        return REPLACE if self.protects == "client" else super().neighbours

    def sensitivity(self, largest_weight: float = 1.0) -> float:
        return self.sensitivity_bound * largest_weight
