"""What noise parts say of themselves is what they do."""

import numpy as np
import pytest
import torch

from dpfl.privacy import Flat, Gaussian
from dpfl.privacy.mechanisms.noises.additive_noise import AdditiveNoise
from dpfl.privacy.mechanisms.noises.haar_release import HaarNoise
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noises.noise import (
    FlooredGaussian,
    Uncalibrated,
    UncalibratedNoiseError,
)
from dpfl.privacy.mechanisms.noises.secure_noise import SecureGaussian

SIZE = 1 << 14
KINDS = [
    Gaussian(2.0),
    FlooredGaussian(2.0, 1.0),
    SecureGaussian(2.0),
    HaarNoise(2.0).for_model([SIZE]),
    BandedNoise(2.0).for_rounds(4, 2),
]


@pytest.mark.parametrize("noise", KINDS, ids=lambda noise: type(noise).__name__)
def test_noise_over_its_deviation_is_standard_normal(noise: AdditiveNoise) -> None:
    vector = noise.vector(SIZE, 3.0, np.random.default_rng(0))
    deviation = 3.0 * (noise.banded_noise.sensitivity if noise.banded_noise else 1.0)
    numbers = noise.standard(vector, deviation)
    assert float(numbers.std()) == pytest.approx(1.0, abs=0.03)
    assert float(numbers.mean()) == pytest.approx(0.0, abs=0.03)


@pytest.mark.parametrize("noise", KINDS, ids=lambda noise: type(noise).__name__)
def test_coefficients_are_mapped_out_and_back(noise: AdditiveNoise) -> None:
    vector = torch.randn(SIZE, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(noise.inward(noise.outward(vector)).float(), vector)
    assert torch.equal(noise.outward(vector), vector) != noise.on_coefficients


def test_noise_by_coordinate_is_as_large_in_one_vector_as_in_several() -> None:
    for noise in KINDS:
        if noise.by_coordinate:
            short, long = (
                noise.vector(size, 3.0, np.random.default_rng(0)).std() for size in (SIZE, 4 * SIZE)
            )
            assert float(long) == pytest.approx(float(short), rel=0.05)


def test_a_multiplier_is_counted_as_it_holds_and_not_before_it_is_known() -> None:
    assert Gaussian(2.0).effective(Flat(1.0)) == 2.0
    assert FlooredGaussian(2.0, 1.5).effective(Flat(1.0)) == 1.5
    assert not Uncalibrated().calibrated
    with pytest.raises(UncalibratedNoiseError):
        Uncalibrated().effective(Flat(1.0))
    assert Uncalibrated(Gaussian(2.0)).kind == Gaussian(2.0)
