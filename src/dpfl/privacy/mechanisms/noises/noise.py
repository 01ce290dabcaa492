"""Gaussian noise in floating point, in units of a release's sensitivity.

The noise of a release has standard deviation z S, for a noise multiplier z and a sensitivity S.
`secure_noise.py` has the form that resists attacks on floating-point arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpfl.codec import part
from dpfl.deprecation import keep_old_names, renamed_keywords
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.noises.additive_noise import AdditiveNoise

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.privacy.mechanisms.clips.clip import Clip

_BLOCK = 1 << 15
_NEAR_ONE = np.float32(1 - 2.0**-10)

MIN_MULTIPLIER, MAX_MULTIPLIER = 1e-15, 1e15
"""Bounds on a noise multiplier. Below them noise protects nobody, above them it drowns everything,
and between them nothing overflows.
"""

MIN_STDDEV, MAX_STDDEV = 1e-30, 1e30
"""Bounds on a standard deviation. Beyond them, float32 rounds noise to 0 or to infinity, and the
release would not be what is accounted for.
"""


def check_noise_multiplier(noise_multiplier: float, of: str = "") -> None:
    """Checks that a noise multiplier is usable.

    Args:
        noise_multiplier: The multiplier z.
        of: What it is of, for the message, such as " of the mean".

    Raises:
        DpflError: If it is not a number between 1e-15 and 1e15.
    """
    if not (noise_multiplier > 0 and math.isfinite(noise_multiplier)):
        raise DpflError(
            f"The noise multiplier{of} must be a positive number, not {noise_multiplier}."
        )
    if not MIN_MULTIPLIER <= noise_multiplier <= MAX_MULTIPLIER:
        raise DpflError(
            f"The noise multiplier{of} must lie between 1e-15 and 1e15, not at "
            f"{noise_multiplier:g}; 1.0 is usual."
        )


def check_stddev(stddev: float) -> None:
    """Checks that noise of a standard deviation fits into float32.

    Args:
        stddev: The standard deviation.

    Raises:
        DpflError: If float32 would round the noise to 0 or to infinity.
    """
    if not MIN_STDDEV <= stddev <= MAX_STDDEV:
        raise DpflError(
            f"Noise with standard deviation {stddev:g} is too small or too large for float32; "
            "choose a clip and a noise whose product lies between 1e-30 and 1e30."
        )


@keep_old_names(multiplier="noise_multiplier")
@part("noise.gaussian")
@dataclass(frozen=True)
class Gaussian(AdditiveNoise):
    """N(0, (z S)^2) on every coordinate.

    Attributes:
        noise_multiplier: The multiplier z.
    """

    noise_multiplier: float
    gaussian = by_coordinate = has_secure_form = True

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)

    def effective(self, clip: Clip) -> float:
        """Computes the multiplier that an accountant may count with.

        Args:
            clip: The clip of the same release, on which it does not depend here.

        Returns:
            The stated multiplier.
        """
        return self.noise_multiplier

    @renamed_keywords(deviation="stddev")
    def vector(self, size: int, stddev: float, rng: np.random.Generator) -> Tensor:
        """Samples the noise of one sum.

        Args:
            size: The number of coordinates.
            stddev: The standard deviation z S.
            rng: The generator.

        Returns:
            The noise in float32.
        """
        return gaussian_vector(size, stddev, rng)


@part("noise.floored-gaussian")
@dataclass(frozen=True)
class FlooredGaussian(Gaussian):
    """Gaussian noise that follows earlier releases, counted as the `floor` that it cannot fall
    below.

    Composition theorems want events that are fixed in advance. The floor is, the noise is not.

    Attributes:
        floor: The multiplier that accountants count with, at most `noise_multiplier`.
    """

    floor: float = 0.0
    can_be_shared = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.floor <= self.noise_multiplier * (1 + 1e-9):
            raise DpflError(
                f"The floor of the noise is {self.floor}; give a number above 0 and at most the "
                f"noise multiplier, {self.noise_multiplier}."
            )

    def effective(self, clip: Clip) -> float:
        """Computes the multiplier that an accountant may count with.

        Args:
            clip: The clip of the same release, on which it does not depend here.

        Returns:
            The floor.
        """
        return self.floor


class UncalibratedNoiseError(DpflError):
    """A release was used before its noise was calibrated."""

    def __init__(self) -> None:
        super().__init__(
            "The noise of this release is not planned yet; give a noise multiplier, or epsilon and "
            "rounds."
        )


@part("noise.uncalibrated")
@dataclass(frozen=True)
class Uncalibrated(AdditiveNoise):
    """Noise whose multiplier is calibrated from the budget before the first round.

    Attributes:
        like: A noise of the kind that it will be; None for Gaussian.
    """

    like: Any = None
    calibrated: ClassVar[bool] = False

    @property
    def kind(self) -> Any:
        """What the noise will be like; None for Gaussian."""
        return self.like

    @property
    def noise_multiplier(self) -> float:
        """None yet: reading it raises `UncalibratedNoiseError`."""
        raise UncalibratedNoiseError

    def effective(self, clip: Clip) -> float:
        """Refuses to compute a multiplier.

        Args:
            clip: The clip of the same release.

        Returns:
            Nothing: it always raises.

        Raises:
            UncalibratedNoiseError: Always.
        """
        raise UncalibratedNoiseError

    def vector(self, size: int, stddev: float, rng: np.random.Generator) -> Tensor:
        """Refuses to sample.

        Args:
            size: The number of coordinates.
            stddev: The standard deviation.
            rng: The generator.

        Returns:
            Nothing: it always raises.

        Raises:
            UncalibratedNoiseError: Always.
        """
        raise UncalibratedNoiseError


def gaussian_vector(size: int, stddev: float, rng: np.random.Generator) -> Tensor:
    """Samples independent normal numbers by the transform of Box and Muller.

    It works on a block at a time, which stays in the cache. The squared radius comes from 63 bits,
    so the tails reach 9.3 standard deviations. 24 bits, the width of a float32, would end them at
    5.8, which costs more than the usual delta over many releases. Near 0 the radius is computed
    from the same bits in float64, and no angle is 0, so no number comes out without noise.

    Args:
        size: How many numbers.
        stddev: Their standard deviation.
        rng: The generator, of 64 raw bits at a time.

    Returns:
        The numbers in float32.
    """
    check_stddev(stddev)
    numbers = np.empty(size + size % 2, np.float32)
    for start in range(0, len(numbers), _BLOCK):
        _fill(numbers[start : start + _BLOCK].reshape(2, -1), np.float32(stddev), rng)
    return torch.from_numpy(numbers[:size])


def _fill(
    pairs: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    stddev: np.float32,
    rng: np.random.Generator,
) -> None:
    count = pairs.shape[1]
    bits = rng.bit_generator.random_raw(count + (count + 1) // 2)
    angle = (bits[count:].view(np.int32)[:count] | 1).astype(np.float32) * np.float32(
        math.pi * 2.0**-31
    )
    np.cos(angle, out=pairs[0])
    np.sin(angle, out=pairs[1])
    pairs *= radii(bits[:count]) * stddev


def radii(bits: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Computes sqrt(-2 log u) for u = k / 2^63, with k made of 63 of the 64 bits and never 0.

    float32 has 24 bits for u and rounds the last 2^-25 to 1, where the radius would be 0. From 1 -
    2^-10 on, 1 - u is computed from what k lacks of 2^63, which is a whole number.

    Args:
        bits: Random words of 64 bits.

    Returns:
        The radii in float32.
    """
    signed_bits = bits.view(np.int64)
    uniform = np.abs(signed_bits.astype(np.float32))
    uniform += 1
    uniform *= np.float32(2.0**-63)
    near_one = np.flatnonzero(uniform > _NEAR_ONE)
    radius: np.ndarray[Any, np.dtype[np.float32]] = np.sqrt(-2 * np.log(uniform))
    lacking = np.uint64(2**63) - np.abs(signed_bits[near_one]).view(np.uint64)
    radius[near_one] = np.sqrt(-2 * np.log1p((lacking.astype(np.float64) + 0.5) * -(2.0**-63)))
    return radius
