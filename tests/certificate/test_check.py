"""A check is good unless it says otherwise, and a verdict collects what all checks say."""

from __future__ import annotations

from dpfl.certificate import Verdict
from dpfl.certificate.check import VerificationCheck


def test_a_verdict_is_good_where_no_check_has_a_finding() -> None:
    good = VerificationCheck("signature", "good")
    open_question = VerificationCheck("run", "not compared", not_checked=("The run.",))
    broken = VerificationCheck("epsilon", "3.0", ("Epsilon is 4.0.",))
    assert Verdict((good, open_question)).to_dict() == {
        "good": True,
        "findings": [],
        "checks": {"signature": "good", "run": "not compared"},
        "not_checked": ["The run."],
    }
    verdict = Verdict((good, broken)).to_dict()
    assert (verdict["good"], verdict["findings"]) == (False, ["Epsilon is 4.0."])
    assert verdict["checks"]["epsilon"] == "failed"
