"""Adds the noise of a release to its sums: in one place, or by all clients together.

A release of multiplier z, clip norm C and largest weight w needs N(0, (z C w)^2) on every
coordinate of its sum. One party adds all of it (`add_noise`), or K clients add shares whose
variances sum to at least that much, even if some of them are missing or collude. A share is added
to floating-point numbers (`add_noise` with `local_stddev`), or inside a secure sum to integers on a
grid (`integer_sum`). Secure noise is on a grid in either case, so that its lowest bits say nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.clips.clip import Clip
from dpfl.privacy.mechanisms.noises.haar_release import HaarNoise
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noises.noise import Gaussian, Uncalibrated, check_stddev
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.noises.secure_noise import noisy_number, secure_sum

if TYPE_CHECKING:
    from torch import Tensor

ABSORPTION_LIMIT = 2.0**-20
"""Noise of a smaller share of the sum has fewer than 4 of float32's 24 bits left."""


class ReleaseSums:
    """The part of a release that sums vectors and adds noise to the sum.

    Attributes:
        clip: The bound on each unit's vector.
        noise: The noise on the sum; None for none.
        noise_shares: Who shares the noise of a secure sum.
    """

    clip: Clip
    noise: Gaussian | Uncalibrated | HaarNoise | BandedNoise | None
    noise_shares: NoiseShares | None

    @property
    def secure(self) -> bool:
        """Whether the noise is on a grid, from a stream cipher."""
        raise NotImplementedError

    @property
    def noise_multiplier(self) -> float:
        """The noise over the sensitivity, which an accountant counts with."""
        raise NotImplementedError

    def sensitivity(self, largest_weight: float = 1.0) -> float:
        """Computes how far the weighted sum moves when one unit is added or removed.

        Args:
            largest_weight: The largest weight of a unit.

        Returns:
            The L2 sensitivity.
        """
        raise NotImplementedError

    def stddev(self, largest_weight: float = 1.0) -> float:
        """Computes the standard deviation of the noise on every coordinate of the sum.

        Args:
            largest_weight: The largest weight of a unit.

        Returns:
            The standard deviation.
        """
        raise NotImplementedError

    def integer_sum(self, bound: float, clients: int) -> IntegerSum:
        """Describes the secure sum that the clients' vectors go into.

        Args:
            bound: The largest magnitude of a number.
            clients: The number of clients.

        Returns:
            The sum, with each client's share of the noise.
        """
        assert self.noise_shares is not None
        return IntegerSum(self.local_stddev, bound, clients)

    def outward(self, vector: Tensor) -> Tensor:
        """Maps a clipped vector to what the clip bounds and the noise is added to.

        Args:
            vector: The clipped vector.

        Returns:
            The vector as it goes into a secure sum.
        """
        return self.noise.outward(vector) if self.noise else vector

    @property
    def count_unit(self) -> float | None:
        """How much 1 of the count is beside the vector in a secure sum; None where nothing is
        counted.

        With it, noise of the vector's standard deviation on that number is the noise of the count.
        """
        count_noise = self.clip.count_noise
        return self.stddev() / count_noise if self.noise_shares and count_noise else None

    def into_sum(self, vector: Tensor, inside: bool | None = None) -> Tensor:
        """Forms what a unit adds to a secure sum: its clipped vector, and b - 1/2 beside it where
        units are counted.

        All of it is one vector, which a unit moves by at most the standard deviation over the
        multiplier.

        Args:
            vector: The clipped vector.
            inside: Whether it was inside the clip before; None if the unit was not drawn.

        Returns:
            The vector that is summed.
        """
        unit = self.count_unit
        if unit is None:
            return self.outward(vector)
        share = 0.0 if inside is None else (inside - 0.5) * unit
        count = torch.tensor([share], dtype=torch.float64)
        return torch.cat([self.outward(vector).double(), count])

    def inward(self, total: Tensor) -> Tensor:
        """Maps a secure sum back.

        Args:
            total: The opened sum.

        Returns:
            The sum of the clipped vectors.
        """
        return self.noise.inward(total) if self.noise else total

    @property
    def local_stddev(self) -> float:
        """The standard deviation of the noise that is added in one place."""
        whole = self.stddev() * (self.noise.share if self.noise else 1.0)
        return self.noise_shares.share(whole) if self.noise_shares else whole

    def energy(self, size: int) -> float:
        """Computes E |noise|^2 of a sum, in units of the variance.

        Args:
            size: The number of coordinates.

        Returns:
            The energy.
        """
        return self.noise.energy(size) if self.noise else float(size)

    def add_noise(
        self,
        total: Tensor,
        rng: np.random.Generator,
        largest_weight: float = 1.0,
        share: float = 1.0,
    ) -> Tensor:
        """Adds the noise to a sum.

        A float64 sum is rounded to float32 after the noise is in it. What is rounded before is part
        of the sensitivity.

        Args:
            total: The exact sum.
            rng: The generator of the noise.
            largest_weight: The largest weight of a unit.
            share: The part of the variance that is added here, the rest elsewhere.

        Returns:
            The noisy sum, in new memory.
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
        """Adds noise that was sampled before.

        Args:
            total: The exact sum.
            noise: The noise.

        Returns:
            The noisy sum.
        """
        return (total + noise).float()

    def add_noise_to_number(
        self, value: float, rng: np.random.Generator, largest_weight: float = 1.0
    ) -> float:
        """Adds noise to one number that a unit moves as far as it moves the weighted sum.

        Args:
            value: The exact number.
            rng: The generator of the noise.
            largest_weight: The largest weight of a unit.

        Returns:
            The noisy number.
        """
        stddev = self.stddev(largest_weight)
        return noisy_number(
            value, stddev, stddev / self.sensitivity(largest_weight), rng, self.secure
        )

    def add_noise_to_count(self, total: float, rng: np.random.Generator) -> float:
        """Adds its share of the noise to the sum of b - 1/2 for quantile clipping, which a unit
        moves by 1/2.

        Args:
            total: The exact sum.
            rng: The generator of the noise.

        Returns:
            The noisy sum.
        """
        stddev = self.clip.count_noise
        assert stddev is not None
        return noisy_number(total, stddev, 2 * stddev, rng, self.secure)

    def check_not_absorbed(self, units: float, longest: float) -> None:
        """Checks that the noise is not lost in the rounding of a float32 sum.

        Args:
            units: The number of units in the sum.
            longest: The largest norm of a unit.

        Raises:
            DpflError: If the sum may be so large that its rounding swallows the noise.
        """
        if self.noise is None:
            return
        check_stddev(self.local_stddev)
        limit = ABSORPTION_LIMIT * units * longest
        if self.local_stddev < limit:
            raise DpflError(
                f"Noise of multiplier {self.noise_multiplier:g} is lost in the rounding of a "
                f"float32 sum of {units:g} clipped units; "
                "raise it above "
                f"{limit * self.noise_multiplier / self.local_stddev:.2g}, "
                "or draw fewer at a time."
            )
