"""Gaussian noise against attacks on floating-point arithmetic: integers on a grid, from a stream
cipher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from dpfl.codec import part
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.noises.noise import Gaussian, check_stddev

if TYPE_CHECKING:
    from torch import Tensor

GRID_BITS = 18
"""The grid is a power of two between 2^-18 and 2^-19 of the noise's deviation: finer costs less
noise, coarser hides more.
"""

_BLOCK = 1 << 14


@part("noise.secure-gaussian")
@dataclass(frozen=True)
class SecureGaussian(Gaussian):
    """round(sum / g) + round(N / g), times g, for a grid g that depends on the deviation alone.

    Floating-point noise on a floating-point sum gives numbers that some sums reach and others do
    not (Mironov 2012), and the outputs of a generator that is no cipher may betray its state
    (Holohan and Braghin 2021). Here both terms are whole numbers below 2^53, so their sum is exact
    and every sum reaches the same numbers: what is released is a function of the rounded sum with
    Gaussian noise, so it is post-processing of the mechanism that is accounted for. Rounding moves
    a sum of d numbers by g sqrt(d) / 2 at most, and the noise is for a sensitivity that is g
    sqrt(d) larger. The bits are those of ChaCha20, under a key from the generator (128 bits of
    entropy) that nobody ever sees.

    Guaranteed: no low bits to read, no state to recover. Not guaranteed: N is computed in float64
    from 128 bits, so each whole number has the chance that it has under the ideal noise to a factor
    of 1 +- 2^-24 only (2^-26 in the mean square), and but for a distance of 2^-52. Over 1000
    releases of 159,010 numbers that adds less than 0.003 to epsilon, by Bernstein's inequality, and
    3e-7 to a delta at epsilon 2 (docs/privacy.md, "The generator"). How long it takes is not
    hidden. The rounding of the sum itself is part of the clip (docs/privacy.md, "Float
    arithmetic").
    """

    by_coordinate = False  # it grows a little with the length of the vector
    on_grid = True

    def vector(self, size: int, stddev: float, rng: np.random.Generator) -> Tensor:
        """Samples the noise alone, for a sum of zeros.

        Args:
            size: The number of coordinates.
            stddev: The standard deviation.
            rng: The generator of the key.

        Returns:
            The noise on the grid, in float32.
        """
        return secure_sum(torch.zeros(size), stddev, self.noise_multiplier, rng)


def secure_sum(
    total: Tensor, stddev: float, noise_multiplier: float, rng: np.random.Generator
) -> Tensor:
    """Adds secure noise to a sum, a block at a time, which stays in the cache.

    `stddev / noise_multiplier` is the sensitivity S before rounding. Rounded, the sum's d numbers
    can move by g sqrt(d) more, so the noise is larger by z g sqrt(d).

    Args:
        total: The exact sum.
        stddev: The standard deviation z S.
        noise_multiplier: The multiplier z.
        rng: The generator of the key.

    Returns:
        The noisy sum in new memory, in float32.
    """
    check_stddev(stddev)
    unit, size = grid_step(stddev), total.numel()
    larger = stddev + noise_multiplier * unit * math.sqrt(size)
    stream = Cipher(algorithms.ChaCha20(rng.bytes(32), bytes(16)), mode=None).encryptor()
    noisy = np.empty(size, np.float32)
    exact = total.detach().reshape(-1).numpy()
    for start in range(0, size, _BLOCK):
        block = slice(start, min(start + _BLOCK, size))
        count = block.stop - start
        bits = np.frombuffer(stream.update(bytes(8 * (count + count % 2))), np.uint64)
        whole = np.rint(standard_normal(bits)[:count] * (larger / unit))
        whole += np.rint(exact[block].astype(np.float64) / unit)
        noisy[block] = whole * unit
    return torch.from_numpy(noisy).reshape(total.shape)


def noisy_number(
    value: float, stddev: float, noise_multiplier: float, rng: np.random.Generator, secure: bool
) -> float:
    """Adds noise to one number whose sensitivity is stddev / noise_multiplier.

    Args:
        value: The exact number.
        stddev: The standard deviation of the noise.
        noise_multiplier: The multiplier.
        rng: The generator.
        secure: Whether the noise is on a grid.

    Returns:
        The noisy number.
    """
    if secure:
        return float(
            secure_sum(torch.tensor([value], dtype=torch.float64), stddev, noise_multiplier, rng)
        )
    return float(value + stddev * rng.standard_normal())


def grid_step(stddev: float) -> float:
    """Chooses the grid for a standard deviation.

    Args:
        stddev: The standard deviation of the noise.

    Returns:
        A power of two. To divide and multiply by it is exact.
    """
    return math.ldexp(1.0, math.frexp(stddev)[1] - 1 - GRID_BITS)


def standard_normal(
    bits: np.ndarray[Any, np.dtype[np.uint64]],
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Computes normal numbers by the transform of Box and Muller in float64.

    Each pair takes 64 bits for its radius and 64 for its angle, so the tails reach 9.4 standard
    deviations.

    Args:
        bits: Random words, an even number of them.

    Returns:
        As many normal numbers as words.
    """
    words, angles = bits.reshape(2, -1)
    radius = words.astype(np.float64)
    radius += 1
    radius *= 2.0**-64
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    half = angles.view(np.int64).astype(np.float64)
    half *= math.pi * 2.0**-64
    tangent = np.tan(
        half, out=half
    )  # cos = (1 - t^2) / (1 + t^2) and sin = 2 t / (1 + t^2): a third of the time of both
    square = tangent * tangent
    radius /= 1 + square
    return np.concatenate([(1 - square) * radius, 2 * tangent * radius])
