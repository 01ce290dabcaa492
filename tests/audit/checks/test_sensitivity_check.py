"""No unit of a sound system moves a release further than its noise is for."""

import pytest

from dpfl.audit.checks.sensitivity_check import check_sensitivity
from tests.audit.systems import CONSTANT_DIVISOR, system


@pytest.mark.parametrize(
    "name",
    ["dp-sgd-wav", "dp-fedavg-wav", "dp-ftrl", "dyn-dp-fedavg", "adap-dp-fl", "nbafl", "auto"],
)
def test_one_unit_moves_a_release_no_further_than_its_noise_is_for(name: str) -> None:
    assert check_sensitivity(system(name, "sound")).faults == ()


def test_a_unit_moves_what_a_constant_divides_by_all_of_its_clip() -> None:
    check = check_sensitivity(CONSTANT_DIVISOR)
    assert check.faults == ()
    assert "100.00% of what the noise covers" in check.summary
