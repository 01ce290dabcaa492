"""Every release is debited and has noise of its own."""

from dataclasses import replace

import pytest

from dpfl.audit.checks.ledger_check import check_ledgers
from tests.audit.systems import PRIVATE, system


@pytest.mark.parametrize(("name", "variant"), PRIVATE)
def test_the_books_of_every_system_are_in_order(name: str, variant: str) -> None:
    found = check_ledgers(system(name, variant))
    assert found.faults == ()
    assert found.releases >= (1 if system(name, variant).clients.whole_run else 3)


def test_a_mean_that_is_asked_for_is_in_the_books() -> None:
    made = system("auto", "sound")
    assert check_ledgers(made).releases == check_ledgers(replace(made, centre=None)).releases + 3
