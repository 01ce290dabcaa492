"""Runs with canaries at real nodes: bounds below what is proven, and not zero where much is
spent.
"""

import pytest

from dpfl.algorithms import custom, dp_sgd_wav, hw_dpfl, ldp_fl
from dpfl.audit import AuditSettings, audit
from dpfl.audit.measurements.whole_run import many_runs, one_run
from dpfl.privacy import Keyed
from dpfl.server.algorithm import Algorithm
from tests.audit.systems import SOUND, system


def test_one_run_with_many_canaries_finds_some_of_what_is_spent() -> None:
    plain = custom(sampling_rate=1.0, noise_multiplier=1.0)
    assert 1.0 < one_run(plain, 1, 1e-5, 1000, 0.95, Keyed(0)).epsilon < 4.377
    louder = custom(sampling_rate=1.0, noise_multiplier=0.5)
    assert 3.0 < one_run(louder, 1, 1e-5, 1000, 0.95, Keyed(0)).epsilon < 9.997


@pytest.mark.parametrize(
    ("made", "truth"),
    [
        (custom(sampling_rate=1.0, noise_multiplier=1.0), 6.572970),
        (ldp_fl(noise_multiplier=1.0, tau=1), 6.572970),
        (hw_dpfl(noise_multiplier=1.0, tau=1), 6.572970),
    ],
    ids=["steps", "uploads of clients", "uploads of samples"],
)
def test_two_rounds_with_one_canary_are_told_apart_within_the_proof(
    made: Algorithm, truth: float
) -> None:
    measured = many_runs(made, 2, 1e-5, 200, 0.95, Keyed(0))
    assert 1.0 < measured.epsilon < truth


def test_the_published_wavelets_are_refuted_by_their_updates_alone() -> None:
    report = audit(dp_sgd_wav("published"), AuditSettings(runs=150), games=["whole run"])
    assert report.verdict == "refuted"


@pytest.mark.parametrize("name", SOUND)
def test_no_run_of_a_sound_system_shows_more_than_is_proven(name: str) -> None:
    for finding in audit(
        system(name, "sound"), AuditSettings(runs=100, rounds=2), games=["whole run", "one run"]
    ).findings:
        assert finding.verdict != "broken", finding


@pytest.mark.parametrize("name", SOUND)
def test_twenty_runs_of_a_sound_system_with_many_canaries_show_no_more_than_is_proven(
    name: str,
) -> None:
    for seed in range(20):
        (finding,) = audit(
            system(name, "sound"), AuditSettings(canaries=200, seed=seed), games=["one run"]
        ).findings
        assert finding.verdict != "broken", (seed, finding)
