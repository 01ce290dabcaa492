"""Proposals: what a run said of itself comes out as it went in, and is the same for the same
run.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dpfl.codec import canonical
from dpfl.privacy import Poisson
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import gaussian
from dpfl.protocol.proposal import Proposal, in_order, proposal_from_words
from dpfl.refusals import ProtocolError
from dpfl.tasks import Binary, MultiClass

STEP, SURVEY = Poisson(0.1).event(1.1, 0), gaussian(8.0)
PROPOSAL = Proposal(
    client=1,
    system="ali-dpfl",
    variant="sound",
    unit="sample",
    neighbours="add/remove one",
    model="mlp",
    options=(("activation", "relu"), ("hidden", 16)),
    learning=MultiClass(10),
    shape=(1, 28, 28),
    schema="",
    epsilon=4.0,
    delta=1e-5,
    rounds=20,
    accountant="pld",
    noise="secure",
    federation=("a", "b"),
    events=((SURVEY, 1), (STEP, 40)),
)

SGD_WORDS = {"part": "optimiser.sgd", "learning_rate": 0.1}


def again(proposal: Proposal) -> Proposal:
    return proposal_from_words(json.loads(canonical(proposal.to_words())))


@pytest.mark.parametrize(
    "proposal",
    [
        PROPOSAL,
        replace(
            PROPOSAL, epsilon=None, rounds=None, options=(), learning=Binary((1.0, 2.0)), events=()
        ),
        replace(
            PROPOSAL,
            options=(("mirror", True), ("rate", 0.5)),
            schema="0" * 64,
            events=((STEP, MAX_RELEASES),),
        ),
    ],
)
def test_a_proposal_comes_out_as_it_went_in(proposal: Proposal) -> None:
    assert again(proposal) == proposal
    assert again(proposal).digest == proposal.digest
    assert replace(proposal, delta=2e-5).digest != proposal.digest


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("client", -1),
        ("client", True),
        ("system", "x" * 65),
        ("system", "a\nb"),
        ("neighbours", "any"),
        ("model", 3),
        ("options", []),
        ("options", {"a": []}),
        ("options", {"a": None}),
        ("options", {str(n): 1 for n in range(17)}),
        ("learning", SGD_WORDS),
        ("shape", [0]),
        ("shape", "1"),
        ("delta", 1),
        ("delta", 0),
        ("rounds", 0),
        ("rounds", 10**9),
        ("accountant", "gdp-clt"),
        ("noise", "little"),
        ("federation", [1]),
        ("events", [["{}", 1]]),
        ("events", [['{"mechanism":"gaussian","noise_multiplier":1.0}', 0]]),
        ("events", [["[" * 900, 1]]),
        ("epsilon", "4"),
        ("epsilon", 0),
        ("epsilon", 1e7),
        ("events", [['{"mechanism":"gaussian", "noise_multiplier":1.0}', 1]]),
        ("more", 1),
    ],
)
def test_a_field_that_is_not_as_it_should_be_is_refused(name: str, odd: Any) -> None:
    words = PROPOSAL.to_words()
    proposal_from_words(words)
    with pytest.raises(ProtocolError):
        proposal_from_words(words | {name: odd})


def test_releases_are_counted_in_the_order_in_which_they_are_made() -> None:
    assert PROPOSAL.most == 41
    assert PROPOSAL.spending(0) == {}
    assert PROPOSAL.spending(1) == {SURVEY: 1}
    assert PROPOSAL.spending(11) == {SURVEY: 1, STEP: 10}


def test_the_events_of_a_run_are_those_before_it_and_then_its_schedule() -> None:
    other = Poisson(0.1).event(0.9, 0)
    assert in_order({SURVEY: 1}, lambda count: {STEP: count}, 5) == ((SURVEY, 1), (STEP, 5))

    def changing(count: int) -> dict[Any, int]:
        return {STEP: min(count, 4) + max(0, count - 6)} | (
            {other: min(count - 4, 2)} if count > 4 else {}
        )

    assert in_order({SURVEY: 1}, changing, 7, each=2) == (
        (SURVEY, 1),
        (STEP, 4),
        (other, 2),
        (STEP, 1),
    )
