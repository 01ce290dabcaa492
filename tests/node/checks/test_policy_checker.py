"""What a node accepts and refuses just at the borders of its policy, asked of the guard itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpfl.client.task import ClientTask
from dpfl.models import FlatModel
from dpfl.node.checks.policy_checker import PolicyChecker
from dpfl.node.load_data import load_node_data
from dpfl.node.policy import read
from dpfl.privacy import FixedSize, Flat, Poisson, Release
from dpfl.privacy.accounting.events import REPLACE
from dpfl.privacy.mechanisms.noises.secure_noise import SecureGaussian
from dpfl.privacy.mechanisms.sampling import All, FixedCohort, PoissonSize
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.refusals import ProtocolError
from tests.conftest import MODEL
from tests.node.loopback import (
    PROPOSAL,
    ROUNDS,
    SAMPLES,
    TASK,
    new_node,
    round_of,
)

LAYOUT = FlatModel(MODEL.build((1, 28, 28), 10, 0)).layout
REPLACING = {"limits": {"neighbours": REPLACE}, "allow": {"largest_sampling_rate": 1.0}}


def guard(folder: Path, **changes: Any) -> PolicyChecker:
    policy = read(new_node(folder / "b", **changes))
    return PolicyChecker(policy, load_node_data(policy), "ab" * 32)


def refusal(of: PolicyChecker, task: ClientTask, size: int = SAMPLES, **proposed: Any) -> str:
    """The word that a task is refused by; empty where it is done."""
    try:
        of.check_task(task, replace(PROPOSAL, **proposed), LAYOUT, size)
        return ""
    except ProtocolError as bad:
        return str(bad.reason)


def stepping(sampling: Any, noise: float = 1.0, level: float = 1.0) -> ClientTask:
    return replace(TASK, samples=Release(sampling, Flat(level), SecureGaussian(noise)))


def test_steps_rounds_noise_clip_and_rate_end_where_the_policy_does(tmp_path: Path) -> None:
    """At most 4 steps, 10 rounds (and 5 of the run), noise 0.8, clip 2, half of the samples."""
    own = guard(tmp_path)
    for task, reason in (
        (replace(TASK, steps=4), ""),
        (replace(TASK, steps=5), "too-many-steps"),
        (round_of(ROUNDS - 1), ""),
        (round_of(ROUNDS), "too-many-rounds"),
        (stepping(Poisson(0.2), noise=0.8), ""),
        (stepping(Poisson(0.2), noise=0.79), "too-little-noise"),
        (stepping(Poisson(0.2), level=2.0), ""),
        (stepping(Poisson(0.2), level=2.01), "clip-too-large"),
        (stepping(Poisson(0.5)), ""),
        (stepping(Poisson(0.51)), "rate-too-high"),
        (replace(TASK, client=0), "wrong-node"),
    ):
        assert refusal(own, task) == reason, task
    assert refusal(own, round_of(9), rounds=None) == ""
    assert refusal(own, round_of(10), rounds=None) == "too-many-rounds"


@pytest.mark.parametrize("sampling", [PoissonSize(10), FixedCohort(10)])
def test_samples_are_drawn_in_ways_that_are_made_for_samples(tmp_path: Path, sampling: Any) -> None:
    changes = REPLACING if sampling.neighbours == REPLACE else {}
    assert refusal(guard(tmp_path, **changes), stepping(sampling)) == "uncovered"


def test_a_draw_of_fixed_size_needs_the_exact_number_and_as_many_samples(tmp_path: Path) -> None:
    own = guard(tmp_path, **REPLACING)
    proposed = {"neighbours": REPLACE}
    assert refusal(own, stepping(FixedSize(SAMPLES)), **proposed) == ""
    assert refusal(own, stepping(FixedSize(SAMPLES + 1)), **proposed) == "rate-too-high"
    assert refusal(own, stepping(FixedSize(5)), size=SAMPLES + 1, **proposed) == "size-not-exact"
    rounded = guard(tmp_path / "other", **REPLACING, tell={"size": {"constant": SAMPLES}})
    assert refusal(rounded, stepping(FixedSize(5)), **proposed) == "size-not-exact"
    assert refusal(own, stepping(All()), **proposed) == "other-unit"


def test_columns_that_samples_do_not_have_are_not_asked_for(tmp_path: Path) -> None:
    own = guard(tmp_path)
    for places, binned, numbers, reason in (
        ((0, 783), (), 784, ""),
        ((0, 784), (), 784, "other-schema"),
        ((0,), ((784, 4),), 784, "other-schema"),
        ((784, 0), (), 784, "other-schema"),
        ((0,), (), 785, "other-schema"),
        ((), (), 784, "other-schema"),
    ):
        query = ColumnQuery(5.0, numbers, places, binned, secure=True)
        assert refusal(own, replace(TASK, steps=0, samples=None, query=query)) == reason, (
            places,
            binned,
            numbers,
        )


def test_surveys_have_noise_enough_and_are_for_adding_one(tmp_path: Path) -> None:
    own = guard(tmp_path)
    for noise, secure, reason in (
        (0.8, True, ""),
        (0.79, True, "too-little-noise"),
        (5.0, False, "not-secure"),
    ):
        query = ColumnQuery(noise, 784, (0,), secure=secure)
        assert refusal(own, replace(TASK, steps=0, samples=None, query=query)) == reason
    replacing = guard(tmp_path / "other", limits={"neighbours": REPLACE})
    query = ColumnQuery(5.0, 784, (0,), secure=True)
    assert refusal(replacing, replace(TASK, steps=0, samples=None, query=query)) == "other-unit"
