"""Games by name: what is not about a system, and what could not be played."""

import pytest

from dpfl.algorithms import dp_fedavg
from dpfl.audit import audit
from dpfl.audit.games import BOUNDING, GAMES, NotApplicable, unplayed_finding
from dpfl.audit.report import ALWAYS, ESTIMATING, INAPPLICABLE, UNTESTABLE


def test_a_game_that_cannot_be_played_says_why() -> None:
    report = audit(dp_fedavg(noise_multiplier=1.0), games=["whole run", "one run", "query"])
    assert {finding.verdict for finding in report.findings} == {"does not apply"}
    assert all(finding.detail for finding in report.findings)
    assert report.verdict == "not enough was tested"


@pytest.mark.parametrize(
    ("why", "word"), [(NotApplicable("no survey"), INAPPLICABLE), ("no machine", UNTESTABLE)]
)
def test_a_gap_is_told_from_a_game_about_nothing(why: str, word: str) -> None:
    finding = unplayed_finding("query", why)
    assert (finding.verdict, finding.detail, finding.measured) == (word, why, None)


def test_lists_of_games_name_games() -> None:
    assert {*BOUNDING, *ALWAYS} <= GAMES.keys()
    assert GAMES.keys() & ESTIMATING == {"canary clients", "membership", "inversion"}
