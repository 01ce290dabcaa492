"""Sound systems have the noise that they state, and none of it twice."""

import math

import numpy as np
import pytest

from dpfl.audit.checks.noise_check import noises, stated_deviation
from dpfl.privacy import All, Flat, Gaussian, Quantile, Release
from tests.audit.systems import CONSTANT_DIVISOR, system


@pytest.mark.parametrize(
    "name",
    ["dp-sgd-wav", "dp-fedavg-wav", "dp-ftrl", "dyn-dp-fedavg", "adap-dp-fl", "nbafl", "auto"],
)
def test_a_sound_system_has_the_noise_that_it_states(name: str) -> None:
    assert noises(system(name, "sound")).faults == ()


def test_noise_over_a_constant_divisor_is_as_much_as_stated() -> None:
    assert noises(CONSTANT_DIVISOR).faults == ()


def test_the_stated_deviation_is_the_multiplier_times_the_clip_norm() -> None:
    assert stated_deviation(Release(All(), Flat(0.5), Gaussian(3.0))) == 1.5
    counted = Release(All(), Quantile(2.0, count_noise=1.0), Gaussian(1.0))
    assert stated_deviation(counted) == pytest.approx(2.0 / math.sqrt(1 - 0.25)), (
        "1/z^2 - 1/(2 s)^2"
    )
    assert np.isfinite(stated_deviation(counted))
