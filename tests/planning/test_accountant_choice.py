"""One place chooses the accountant, and chooses as the places before it did."""

import pytest

from dpfl.audit.subject import SMALL
from dpfl.errors import DpflError
from dpfl.planning.accountant_choice import accountant_of
from dpfl.privacy import All, FixedSize, Flat, Gaussian, Poisson, Release
from dpfl.privacy.accounting.accountant import default_accountant
from tests.audit.systems import PRIVATE, system


@pytest.mark.parametrize("population", [2, 300])
@pytest.mark.parametrize(("name", "variant"), PRIVATE)
def test_every_system_keeps_its_accountant(name: str, variant: str, population: int) -> None:
    """Fault: the record's accountant followed from the event, that of the plan from the sampling.

    An event that nothing covers says nothing of how units are drawn.
    """
    release = system(name, variant).for_model(SMALL).release
    assert release is not None
    chosen = accountant_of(release, population, None).name
    assert chosen == default_accountant(release.event(population))


@pytest.mark.parametrize(
    ("release", "name"),
    [
        (Release(Poisson(0.1), Flat(1.0), Gaussian(1.0)), "pld"),
        (Release(All(), Flat(1.0), Gaussian(1.0)), "pld"),
        (Release(FixedSize(5), Flat(1.0), Gaussian(1.0)), "rdp"),
        (None, "pld"),
    ],
)
def test_sampling_decides_unless_somebody_asks(release: Release | None, name: str) -> None:
    assert accountant_of(release, 100, None).name == name
    assert accountant_of(release, 100, "rdp-classic").name == "rdp-classic"
    with pytest.raises(DpflError, match="cannot guard a budget"):
        accountant_of(release, 100, "gdp-clt")
