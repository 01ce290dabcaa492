"""Noise of a release, in units of its sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1 << 15
_NEAR_ONE = np.float32(1 - 2.0**-10)

MIN_MULTIPLIER, MAX_MULTIPLIER = 1e-15, 1e15
"""Noise beyond protects nobody, or drowns everything; in between nothing overflows."""

MIN_STDDEV, MAX_STDDEV = 1e-30, 1e30
"""Beyond, float32 rounds noise to 0 or to infinity: what is released would not be what is accounted
for.
"""


def check_noise_multiplier(noise_multiplier: float, of: str = "") -> None:
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
    if not MIN_STDDEV <= stddev <= MAX_STDDEV:
        raise DpflError(
            f"Noise of deviation {stddev:g} does not fit into float32, which would round it "
            "away; choose a clip and a noise "
            "whose product lies between 1e-30 and 1e30."
        )


@part("noise.gaussian")
@dataclass(frozen=True)
class Gaussian:
    """N(0, (multiplier * sensitivity)^2) on every coordinate."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)

    def vector(self, size: int, stddev: float, rng: np.random.Generator) -> Tensor:
        return gaussian_vector(size, stddev, rng)


@part("noise.floored-gaussian")
@dataclass(frozen=True)
class FlooredGaussian(Gaussian):
    """Gaussian noise that follows what was released before, counted as the `floor` that it cannot
    fall below.

    Composition theorems want events that are fixed beforehand: the floor is, the noise is not.
    """

    floor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.floor <= self.noise_multiplier * (1 + 1e-9):
            raise DpflError(
                f"Noise of multiplier {self.noise_multiplier} cannot be counted as {self.floor}."
            )


class UncalibratedNoiseError(DpflError):
    def __init__(self) -> None:
        super().__init__(
            "The noise of this release is not planned yet; give a noise multiplier, or epsilon and "
            "rounds."
        )


@part("noise.uncalibrated")
@dataclass(frozen=True)
class Uncalibrated:
    """Noise whose multiplier is still to be found, from the budget, before the first round:
    Gaussian, or `like` another.
    """

    like: Any = None

    @property
    def noise_multiplier(self) -> float:
        raise UncalibratedNoiseError

    def vector(self, size: int, stddev: float, rng: np.random.Generator) -> Tensor:
        raise UncalibratedNoiseError


class Noise(Protocol):
    @property
    def noise_multiplier(self) -> float:
        """Deviation over the level of the clip, as it is stated."""

    def vector(self, size: int, stddev: float, rng: np.random.Generator) -> Tensor:
        """Noise for a sum of this size."""


def gaussian_vector(size: int, stddev: float, rng: np.random.Generator) -> Tensor:
    """Independent normal numbers by the transform of Box and Muller, a block at a time so that it
    stays in the cache.

    The squared radius comes from 63 bits, so that the tails reach 9.3 deviations: 24 bits, the
    width of a float32, would end them at 5.8, and with T releases that alone would cost more than
    the usual delta. Near 0 the radius is made from the same bits in float64, and no angle is 0: a
    number without any noise cannot come out.
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
    """sqrt(-2 log u) for u = k / 2^63, k being 63 of the 64 bits and never 0.

    float32 has 24 bits for u and rounds the last 2^-25 to 1, where the radius would be 0: from 1 -
    2^-10 on, 1 - u is made from what k lacks of 2^63 instead, which is a whole number.
    """
    signed = bits.view(np.int64)
    uniform = np.abs(signed.astype(np.float32))
    uniform += 1
    uniform *= np.float32(2.0**-63)
    near_one = np.flatnonzero(uniform > _NEAR_ONE)
    radius: np.ndarray[Any, np.dtype[np.float32]] = np.sqrt(-2 * np.log(uniform))
    lacking = np.uint64(2**63) - np.abs(signed[near_one]).view(np.uint64)
    radius[near_one] = np.sqrt(-2 * np.log1p((lacking.astype(np.float64) + 0.5) * -(2.0**-63)))
    return radius
