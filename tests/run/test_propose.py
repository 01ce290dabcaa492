"""What a server proposes to nodes, and what it refuses to propose."""

from __future__ import annotations

import pytest

from dpfl.config.experiment import parse
from dpfl.errors import DpflError
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from tests.run.loopback_runs import BASE


def test_noise_that_every_node_would_have_to_add_is_refused() -> None:
    """A node that lies adds none, and the guarantee of all others would be less than is said."""
    shared = {
        "algorithm": {"name": "dp-fedavg", "cohort": 2, "noise": "clients"},
        "privacy": {"noise": "plain"},
    }
    with pytest.raises(DpflError, match="every node adds its share"):
        parse(BASE | shared).proposal(("a", "b", "c"))


def test_more_kinds_of_releases_than_a_node_plans_are_refused(monkeypatch) -> None:
    monkeypatch.setattr("dpfl.run.propose.MOST_KINDS", 2)
    phases = {
        "algorithm": {"name": "dyn-dp-sgd", "phases": 3, "noise_multiplier": 2.0},
        "privacy": {"accountant": "rdp"},
    }
    with pytest.raises(DpflError, match="and this run has 3"):
        parse(BASE | phases).proposal(("a", "b", "c"))


PRIVACY = {"privacy": {"accountant": "rdp"}}


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (
            "leaves all bounds",
            {"algorithm": {"name": "fedavg-dp", "sampling_rate": 0.01, "rate": 1e39}},
        ),
        ("cannot be drawn from 3", {"algorithm": {"name": "fedavg", "cohort": 4}}),
        (
            "only rounds, bytes or seconds can end it",
            {"algorithm": {"name": "fedavg"}, "budget": {"epsilon": 4.0}},
        ),
    ],
)
def test_what_would_fail_in_the_first_round_is_refused_before_any_node_joins(
    words: str, changes: dict[str, object]
) -> None:
    """Fault: nodes had written that they joined, and then the server refused its own run."""
    with pytest.raises(DpflError, match=words):
        parse(BASE | PRIVACY | changes).proposal(("a", "b", "c"))


def test_a_rate_that_follows_from_the_sizes_is_no_reason_to_refuse() -> None:
    automatic = {"algorithm": {"name": "auto"}}
    assert parse(BASE | PRIVACY | automatic).proposal(("a", "b", "c"))(0).rounds == 3


def test_a_run_without_rounds_plans_as_many_releases_as_a_ledger_can_count() -> None:
    endless = {
        "algorithm": {"name": "fedavg-dp", "sampling_rate": 0.01, "noise_multiplier": 2.0},
        "budget": {"epsilon": 4.0, "delta": 1e-5},
    }
    proposal = parse(BASE | PRIVACY | endless).proposal(("a", "b", "c"))(0)
    assert [count for _, count in proposal.events] == [MAX_RELEASES]
