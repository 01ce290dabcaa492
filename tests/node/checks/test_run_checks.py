"""Runs that a policy does not allow, refused before they are joined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpfl.privacy import FixedSize
from dpfl.privacy.accounting.events import gaussian
from dpfl.tasks import Binary, MultiClass
from tests.node.loopback import (
    PROPOSAL,
    SAMPLES,
    Open,
    join,
    work,
)  # fmt: skip
from tests.node.test_service import unmoved

RUNS: dict[str, tuple[Any, str]] = {
    "a published variant": (replace(PROPOSAL, variant="published"), "variant-not-allowed"),
    "another system": (replace(PROPOSAL, system="fedavg"), "system-not-allowed"),
    "another model": (replace(PROPOSAL, model="resnet-18", options=()), "model-not-allowed"),
    "a model by an import path": (
        replace(PROPOSAL, model="os:system", options=(("command", "true"),)),
        "model-not-allowed",
    ),
    "options that a model does not have": (
        replace(PROPOSAL, options=(("name", "cnn"),)),
        "model-not-allowed",
    ),
    "a model of 3 GB": (replace(PROPOSAL, options=(("hidden", 1_000_000),)), "too-large"),
    "a model that takes hours to build": (
        replace(PROPOSAL, model="transformer", options=(("layers", 1_000_000), ("vocabulary", 4))),
        "model-not-allowed",
    ),
    "another task": (replace(PROPOSAL, learning=Binary()), "other-schema"),
    "other classes": (replace(PROPOSAL, learning=MultiClass(11)), "other-schema"),
    "another shape": (replace(PROPOSAL, shape=(784,)), "other-schema"),
    "a table": (replace(PROPOSAL, schema="0" * 64), "other-schema"),
    "more rounds": (replace(PROPOSAL, rounds=11), "too-many-rounds"),
    "another unit": (replace(PROPOSAL, unit="client"), "other-unit"),
    "other neighbours": (replace(PROPOSAL, neighbours="replace one"), "other-unit"),
    "events of other neighbours": (
        replace(PROPOSAL, events=((FixedSize(6).event(2.0, SAMPLES), 5),), accountant="rdp"),
        "other-unit",
    ),
    "events without noise": (replace(PROPOSAL, events=((gaussian(0.0), 1),)), "too-little-noise"),
    "events with less noise": (replace(PROPOSAL, events=((gaussian(0.7), 1),)), "too-little-noise"),
    "noise in floating point": (replace(PROPOSAL, noise="floating-point"), "not-secure"),
    "a place of another": (replace(PROPOSAL, client=0), "wrong-node"),
    "no noise at all": (replace(PROPOSAL, unit="none", events=(), noise="none"), "without-noise"),
    "noise at the server": (replace(PROPOSAL, unit="client", events=()), "not-trusted"),
}


@pytest.mark.parametrize("what", RUNS)
def test_a_run_that_the_policy_does_not_allow_is_refused_and_not_worked_for(
    opened: Open, what: str
) -> None:
    node = opened()
    proposal, reason = RUNS[what]
    unmoved(node, join(proposal), reason)
    unmoved(node, work(), "not-joined")
