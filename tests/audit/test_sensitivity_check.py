"""No unit of a sound system moves a release further than its noise is for."""

import pytest

from dpfl.audit.sensitivity_check import check_sensitivity
from tests.audit.systems import system


@pytest.mark.parametrize(
    "name",
    ["dp-sgd-wav", "dp-fedavg-wav", "dp-ftrl", "dyn-dp-fedavg", "adap-dp-fl", "nbafl", "auto"],
)
def test_one_unit_moves_a_release_no_further_than_its_noise_is_for(name: str) -> None:
    assert check_sensitivity(system(name, "sound")).faults == ()
