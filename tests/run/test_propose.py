"""What a server proposes to nodes, and what it refuses to propose."""

from __future__ import annotations

import pytest

from dpfl.config.experiment import parse
from dpfl.errors import DpflError
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
    with pytest.raises(DpflError, match="and this has 3"):
        parse(BASE | phases).proposal(("a", "b", "c"))
