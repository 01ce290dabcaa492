"""The audit as a whole: verdicts, and what becomes of systems that cannot be played."""

from dataclasses import dataclass, replace

import pytest

from dpfl.algorithms import dp_fedavg, dp_sgd_wav, fedavg, fedavg_dp, hw_dpfl
from dpfl.audit import AuditSettings, audit
from dpfl.audit.games import GAMES
from dpfl.client.descent.optimisers import SGD, Step
from dpfl.errors import DpflError
from dpfl.privacy import FixedSize


def test_without_noise_there_is_nothing_to_test() -> None:
    report = audit(fedavg())
    assert report.verdict == "not testable"
    assert "claims nothing" in report.why


def test_a_game_may_have_its_old_name_until_version_0_3() -> None:
    with pytest.warns(DeprecationWarning, match="game 'books' is now 'ledgers'"):
        report = audit(fedavg(), games=["books"])
    assert report.verdict == "not testable"
    with pytest.raises(DpflError, match="no game 'bookz'"):
        audit(fedavg(), games=["bookz"])


@pytest.mark.parametrize("build", [hw_dpfl])
def test_a_leak_refutes_whatever_the_figures(build) -> None:
    report = audit(build("published"), games=["leaks"])
    assert report.verdict == "refuted"
    assert report.to_dict()["measured"] == "unbounded"
    assert report.to_dict()["proven"] == "unbounded"


def test_the_bounds_of_an_audit_share_what_may_go_wrong() -> None:
    games = ["one release", "leaks", "whole run", "one run"]
    findings = audit(
        fedavg_dp(noise_multiplier=1.0),
        AuditSettings(trials=200, runs=100, rounds=1, canaries=100),
        games=games,
    ).findings
    each = pytest.approx(1 - 0.05 / 3)
    assert [finding.confidence for finding in findings] == [each, 1.0, each, each]


@dataclass(frozen=True)
class Elsewhere(SGD):
    """A part of somebody's own that no game can use here."""

    def start(self) -> Step:
        raise DpflError("This optimiser needs a machine that is not here.")


def test_where_most_games_cannot_be_played_not_enough_was_tested() -> None:
    """Fault: four games of fourteen were enough for "consistent"."""
    plain = fedavg_dp(noise_multiplier=1.0)
    report = audit(
        replace(plain, local=replace(plain.local, optimiser=Elsewhere(0.1))),
        AuditSettings(trials=100, runs=100, canaries=100),
    )
    assert {one.game: one.verdict for one in report.findings}["one release"] == "consistent"
    assert report.verdict == "not enough was tested"
    told = report.to_dict()
    assert set(told["played"]) == {
        "one release",
        "noise",
        "batches",
        "sensitivity",
        "amplification",
    }
    assert {"leaks", "ledgers", "whole run", "one run"} <= set(told["not_testable"])
    assert set(told["does_not_apply"]) == {"query", "slope", "masks", "canary clients"}
    assert "ledgers" in told["why"]


def test_the_report_names_what_was_played_and_what_was_not_asked_for() -> None:
    report = audit(
        dp_fedavg(noise_multiplier=1.0), AuditSettings(trials=200), games=["one release", "query"]
    )
    told = report.to_dict()
    assert (told["verdict"], told["played"], told["does_not_apply"]) == (
        "consistent",
        ["one release"],
        ["query"],
    )
    assert "ledgers" in told["not_asked_for"]
    assert set(GAMES) == {"one release", "query", *told["not_asked_for"]}
    assert "played: one release" in report.coverage


def test_cohorts_of_a_fixed_size_are_audited_for_one_client_replaced() -> None:
    report = audit(
        dp_fedavg(cohort=4, sampling="fixed-size", noise_multiplier=1.0),
        AuditSettings(trials=2000),
        games=["one release"],
    )
    assert report.verdict == "consistent"
    assert report.findings[0].measured > 1.0


def test_the_same_seed_gives_the_same_audit() -> None:
    one, again, other = (
        audit(
            dp_fedavg(noise_multiplier=1.0),
            AuditSettings(trials=500, seed=seed),
            games=["one release"],
        ).to_dict()
        for seed in (0, 0, 1)
    )
    assert one == again
    assert one != other


def test_a_user_error_is_a_sentence() -> None:
    with pytest.raises(DpflError, match="no game 'one relase'; did you mean 'one release'"):
        audit(fedavg(), games=["one relase"])
    with pytest.raises(DpflError, match="confidence"):
        audit(fedavg(), AuditSettings(confidence=1.0))
    with pytest.raises(DpflError, match="100 to 10,000,000"):
        audit(fedavg(), AuditSettings(trials=10))


def test_an_own_algorithm_is_audited_like_any_other() -> None:
    own = replace(dp_sgd_wav("published", noise_multiplier=1.0), name="own")
    assert audit(own, AuditSettings(trials=2000), games=["one release"]).verdict == "refuted"
    plain = fedavg_dp(noise_multiplier=1.0)
    drawn = replace(plain, samples=replace(plain.samples, sampling=FixedSize(4)))
    assert (
        audit(
            drawn,
            AuditSettings(trials=1000, runs=100, rounds=2),
            games=["one release", "whole run"],
        ).verdict
        == "consistent"
    )
