"""Settings of an audit, and what is claimed and proven of its system."""

import pytest

from dpfl.algorithms import ali_dpfl, dp_fedavg, fedavg_dp
from dpfl.audit import AuditSettings
from dpfl.audit.bounds import MeasuredEpsilon
from dpfl.audit.subject import AuditSubject
from dpfl.errors import DpflError


@pytest.mark.parametrize(
    "options",
    [
        {"confidence": 0.4},
        {"delta": 0.0},
        {"runs": 99},
        {"canaries": 10_000_001},
        {"rounds": 0},
        {"seed": -1},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(DpflError):
        AuditSettings(**options)


def test_a_round_has_a_release_per_step_where_the_steps_are_fixed() -> None:
    assert AuditSubject(fedavg_dp(noise_multiplier=1.0, tau=3)).steps == 3
    assert AuditSubject(ali_dpfl(noise_multiplier=1.0)).steps == 1
    assert AuditSubject(dp_fedavg(noise_multiplier=1.0, tau=3)).steps == 1


def test_a_system_samples_from_twice_the_units_that_it_draws() -> None:
    assert AuditSubject(dp_fedavg(cohort=7, noise_multiplier=1.0)).population == 14
    assert AuditSubject(dp_fedavg(noise_multiplier=1.0)).population == 1


def test_a_bound_is_judged_by_the_epsilon_of_as_many_releases() -> None:
    subject = AuditSubject(dp_fedavg(noise_multiplier=1.0))
    assert subject.proven_epsilon(1) == pytest.approx(4.377, abs=0.001)
    assert subject.proven_epsilon(2) > subject.proven_epsilon(1)
    measured = MeasuredEpsilon(5.0, 0.95, 100, "a test")
    assert subject.judge("one release", "one release", 1, measured).verdict == "broken"
    assert subject.judge("one release", "two releases", 2, measured).verdict == "consistent"
