"""What nodes are asked beside their updates, in a secure sum: paid for, with the noise and on the
terms that the run said.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpfl.client.task import ClientTask, SecureSumTerms
from dpfl.privacy import Ledger
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from tests.node.loopback import ROUNDS
from tests.node.summing import EVENT, NAMES, RELEASE, SHARED, Together, said, task

MEAN = MeanQuery(5.0, secure=True)
MEAN_SUM = SecureSumTerms(1.0, 28.0 * 60, len(NAMES))


def asked_mean(name: str, **changes: Any) -> ClientTask:
    return task(name, **{"steps": 0, "query": MEAN, "secure_sum": MEAN_SUM, **changes})


def test_what_is_asked_with_all_of_its_noise_is_answered_by_itself(together: Together) -> None:
    """A mean before the first round is no part of a sum: its noise is whole."""
    mean = MeanQuery(5.0, secure=True)
    together.joined(events=((mean.event, 1), (EVENT, ROUNDS)))
    message = together.work("", task("b", steps=0, query=mean, secure_sum=None))
    assert said(together.nodes["b"](message)) == "reply"


def test_an_answer_in_a_secure_sum_is_paid_for_before_it_leaves(together: Together, spied) -> None:
    """Once a session, with its own event, marked as a share; the sum has the noise that all shares
    make, and no less.
    """
    events = ((MEAN.event, 2), (EVENT, ROUNDS))
    together.joined(events=events)
    session, node = together.set_up(events=events), together.nodes["b"]
    message = together.work(session, asked_mean("b"))
    first = node.service.answer(message)
    assert together.spending("b") == {MEAN.event: 1}
    with closing(Ledger.read(together.folder / "b" / "ledger" / "b.sqlite")) as ledger:
        assert [release.split("/")[1] for _, release, *_ in ledger.debits()] == [SHARED.mark]
    assert node.service.answer(message) == first
    assert together.spending("b") == {MEAN.event: 1}
    again = together.set_up(task_name="again", events=events)
    assert said(node(together.work(again, asked_mean("b")))) == "masked"
    assert together.spending("b") == {MEAN.event: 2}
    third = together.set_up(task_name="third", events=events)
    assert node.refused(together.work(third, asked_mean("b"))) == "not-planned"
    one, other = (
        MEAN.integer_sum(SHARED, 784, MEAN_SUM.bound, len(NAMES)).total(own) for own in spied
    )
    noise = MEAN.noise_multiplier * 28.0 / SHARED.unknown_shares**0.5
    assert np.std(one - other) == pytest.approx(
        noise * 2**0.5, rel=0.15
    )  # of 784 numbers, 6 deviations


def test_an_answer_is_summed_on_the_terms_that_the_run_said_and_on_no_others(
    together: Together,
) -> None:
    events = ((MEAN.event, 1), (EVENT, ROUNDS))
    together.joined(events=events)
    session, node = together.set_up(events=events), together.nodes["b"]
    for changes, reason in (
        ({"samples": replace(RELEASE, noise_shares=NoiseShares(4, 1))}, "unmasked"),
        ({"samples": replace(RELEASE, noise_shares=NoiseShares(3, 0))}, "unmasked"),
        ({"samples": replace(RELEASE, noise_shares=NoiseShares(2, 1))}, "unmasked"),
        ({"samples": replace(RELEASE, noise_shares=None)}, "uncovered"),
        ({"query": LabelQuery(5.0, secure=True)}, "uncovered"),
        ({"query": replace(MEAN, noise_multiplier=0.5)}, "too-little-noise"),
        ({"query": replace(MEAN, noise_multiplier=4.0)}, "not-planned"),
        ({"secure_sum": replace(MEAN_SUM, clients=3)}, "bad-words"),
        ({"secure_sum": replace(MEAN_SUM, bound=1e20)}, "bad-words"),
    ):
        asked = asked_mean("b", **changes)
        message = together.work(session if asked.noise_shares else "", asked)
        assert node.refused(message) == reason, changes
    assert together.spending("b") == {}
    assert said(node(together.work(session, asked_mean("b")))) == "masked"
