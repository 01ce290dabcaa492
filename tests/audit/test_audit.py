"""The audit as a whole: verdicts, and what becomes of systems that cannot be played."""

from dataclasses import replace

import pytest

from dpfl.algorithms import dp_fedavg, dp_sgd_wav, fedavg, fedavg_dp, hw_dpfl
from dpfl.audit import Finding, Report, audit
from dpfl.audit.report import verdict
from dpfl.errors import DpflError
from dpfl.privacy import FixedSize


def test_a_bound_is_held_against_the_proof_first_and_then_against_the_claim() -> None:
    assert verdict(3.0, 2.0, 2.5) == "broken"
    assert verdict(2.2, 2.0, 2.5) == "refuted"
    assert verdict(1.9, 2.0, 2.5) == "consistent"
    assert verdict(2.2, None, 2.5) == "consistent"
    assert verdict(float("inf"), 2.0, float("inf")) == "refuted"


def test_the_worst_verdict_decides_and_its_figures_stand_at_the_top() -> None:
    def finding(game: str, word: str, measured: float | None) -> Finding:
        return Finding(game, "one release", 1.0, 2.0, measured, 0.95, word, "how")

    findings = (finding("a", "consistent", 0.5), finding("b", "refuted", 1.2), finding("c", "refuted", 1.5))
    report = Report("x", "published", "sample", 1e-5, 0.95, 1.0, (*findings, finding("d", "not testable", None)))
    told = report.to_dict()
    assert (told["verdict"], told["game"], told["measured"], told["claimed"], told["proven"]) == ("refuted", "c", 1.5, 1.0, 2.0)
    assert [game["game"] for game in told["games"]] == ["a", "b", "c", "d"]


def test_without_noise_there_is_nothing_to_test() -> None:
    report = audit(fedavg())
    assert report.verdict == "not testable"
    assert "nothing is claimed" in report.why


@pytest.mark.parametrize("build", [hw_dpfl])
def test_a_leak_refutes_whatever_the_figures(build) -> None:
    report = audit(build("published"), games=["leaks"])
    assert report.verdict == "refuted"
    assert report.to_dict()["measured"] == "unbounded"
    assert report.to_dict()["proven"] == "unbounded"


def test_the_bounds_of_an_audit_share_what_may_go_wrong() -> None:
    games = ["one release", "leaks", "whole run", "one run"]
    findings = audit(fedavg_dp(noise_multiplier=1.0), trials=200, runs=100, rounds=1, canaries=100, games=games).findings
    each = pytest.approx(1 - 0.05 / 3)
    assert [finding.confidence for finding in findings] == [each, 1.0, each, each]


def test_a_game_that_cannot_be_played_says_why() -> None:
    found = audit(dp_fedavg(noise_multiplier=1.0), games=["whole run", "one run", "survey"]).findings
    assert {finding.verdict for finding in found} == {"not testable"}
    assert all(finding.detail for finding in found)


def test_cohorts_of_a_fixed_size_are_audited_for_one_client_replaced() -> None:
    report = audit(dp_fedavg(cohort=4, sampling="fixed-size", noise_multiplier=1.0), trials=2000, games=["one release"])
    assert report.verdict == "consistent"
    assert report.findings[0].measured > 1.0


def test_the_same_seed_gives_the_same_audit() -> None:
    one, again, other = (
        audit(dp_fedavg(noise_multiplier=1.0), trials=500, games=["one release"], seed=seed).to_dict() for seed in (0, 0, 1)
    )
    assert one == again
    assert one != other


def test_a_user_error_is_a_sentence() -> None:
    with pytest.raises(DpflError, match="no game 'one relase'; did you mean 'one release'"):
        audit(fedavg(), games=["one relase"])
    with pytest.raises(DpflError, match="confidence"):
        audit(fedavg(), confidence=1.0)
    with pytest.raises(DpflError, match="100 to 10,000,000"):
        audit(fedavg(), trials=10)


def test_an_own_algorithm_is_audited_like_any_other() -> None:
    own = replace(dp_sgd_wav("published", noise_multiplier=1.0), name="own")
    assert audit(own, trials=2000, games=["one release"]).verdict == "refuted"
    plain = fedavg_dp(noise_multiplier=1.0)
    drawn = replace(plain, samples=replace(plain.samples, sampling=FixedSize(4)))
    assert audit(drawn, trials=1000, runs=100, rounds=2, games=["one release", "whole run"]).verdict == "consistent"
