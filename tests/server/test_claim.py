"""What a paper claims of its own privacy."""

from dpfl.privacy import accountant
from dpfl.privacy.accounting.events import gaussian
from dpfl.server.claim import NO_CLAIM, Claim

EVENTS = {gaussian(2.0): 3, gaussian(4.0): 2}


def test_a_formula_is_of_the_number_of_releases_and_comes_before_the_accountant() -> None:
    assert Claim("a sum", formula=lambda releases: 0.5 * releases).epsilon(EVENTS, 1e-5) == 2.5
    assert Claim("both", "rdp", lambda releases: 7.0).epsilon(EVENTS, 1e-5) == 7.0


def test_an_accountant_counts_the_releases_as_the_paper_does() -> None:
    expected = accountant("rdp").epsilon(EVENTS, 1e-5)
    assert Claim("by RDP", "rdp").epsilon(EVENTS, 1e-5) == expected


def test_nothing_is_claimed_by_default() -> None:
    assert NO_CLAIM.epsilon(EVENTS, 1e-5) is None
