"""Tasks that a policy does not allow, refused before anything is debited."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpfl.client.descent.optimisers import Adam
from dpfl.client.task import LocalTraining
from dpfl.privacy import All, FixedSize, Flat, Gaussian, Poisson, PoissonSize, Release
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noises.secure_noise import SecureGaussian
from dpfl.privacy.mechanisms.sampling import Cyclic
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from tests.node.loopback import (
    PROPOSAL,
    RELEASE,
    ROUNDS,
    SAMPLES,
    SIZE,
    TASK,
    Asked,
    Open,
    join,
    round_of,
    work,
)  # fmt: skip
from tests.node.test_service import unmoved

HAAR = Release(Poisson(0.2), HaarClip(1.0, ends=(SIZE,)), HaarNoise(5.0, ends=(SIZE,)))


TASKS: dict[str, tuple[Any, str]] = {
    "more steps": (round_of(0, steps=5), "too-many-steps"),
    "no steps": (round_of(0, steps=0), "bad-words"),
    "less noise": (
        round_of(0, samples=replace(RELEASE, noise=SecureGaussian(0.79))),
        "too-little-noise",
    ),
    "a larger clip": (round_of(0, samples=replace(RELEASE, clip=Flat(2.01))), "clip-too-large"),
    "a higher rate": (
        round_of(0, samples=replace(RELEASE, sampling=Poisson(0.51))),
        "rate-too-high",
    ),
    "all samples": (round_of(0, samples=replace(RELEASE, sampling=All())), "rate-too-high"),
    "another rate than was planned": (
        round_of(0, samples=replace(RELEASE, sampling=Poisson(0.3))),
        "not-planned",
    ),
    "more noise than was planned": (
        round_of(0, samples=replace(RELEASE, noise=SecureGaussian(2.0))),
        "not-planned",
    ),
    "noise in floating point": (
        round_of(0, samples=replace(RELEASE, noise=Gaussian(1.0))),
        "not-secure",
    ),
    "Haar noise": (round_of(0, samples=HAAR), "not-secure"),
    "Haar coefficients of another model": (
        round_of(
            0,
            samples=replace(
                HAAR, clip=HaarClip(1.0, ends=(10**9,)), noise=HaarNoise(5.0, ends=(10**9,))
            ),
        ),
        "bad-words",
    ),
    "noise that is taken back": (
        round_of(0, samples=Release(Cyclic(10), Flat(1.0), BandedNoise(1.0, rounds=9, turns=2))),
        "uncovered",
    ),
    "a batch counted by what is there": (
        round_of(0, samples=replace(RELEASE, sampling=PoissonSize(12))),
        "uncovered",
    ),
    "a batch of a fixed size": (
        round_of(0, samples=replace(RELEASE, sampling=FixedSize(12))),
        "other-unit",
    ),
    "a division by the batch": (
        round_of(0, samples=replace(RELEASE, divide_by_drawn=True)),
        "raw-values",
    ),
    "a raw value": (round_of(0, raw=True), "raw-values"),
    "no noise": (round_of(0, samples=Release(Poisson(0.2), Flat(1.0))), "without-noise"),
    "nothing private at all": (round_of(0, samples=None), "without-noise"),
    "noise that the server adds": (
        round_of(0, samples=None, clients=Release(All(), Flat(1.0), SecureGaussian(1.0))),
        "not-trusted",
    ),
    "an upload for less than a sample moves": (
        round_of(
            0,
            samples=None,
            update=UpdateRelease(clip=Flat(1.0), noise=SecureGaussian(1.0), sensitivity_bound=0.1),
        ),
        "uncovered",
    ),
    "an upload of clients": (
        round_of(
            0,
            samples=None,
            update=UpdateRelease(
                clip=Flat(1.0), noise=SecureGaussian(1.0), sensitivity_bound=2.0, protects="client"
            ),
        ),
        "other-unit",
    ),
    "a slope without noise": (
        round_of(
            0,
            slope=True,
            update=UpdateRelease(clip=Flat(1.0), noise=SecureGaussian(1.0), sensitivity_bound=2.0),
        ),
        "uncovered",
    ),
    "a slope that was not planned": (
        round_of(0, slope=True, samples=replace(RELEASE, sampling=Poisson(0.1))),
        "not-planned",
    ),
    "exact counts": (replace(TASK, steps=0, query=LabelQuery(None)), "raw-values"),
    "exact counts for a trusted server": (
        replace(TASK, steps=0, query=LabelQuery(None, trusted=True)),
        "not-trusted",
    ),
    "counts with little noise": (
        replace(TASK, steps=0, query=LabelQuery(0.5, secure=True)),
        "too-little-noise",
    ),
    "counts in floating point": (replace(TASK, steps=0, query=LabelQuery(5.0)), "not-secure"),
    "counts that were not planned": (
        replace(TASK, steps=0, query=LabelQuery(5.0, secure=True)),
        "not-planned",
    ),
    "a mean that was not planned": (
        replace(TASK, steps=0, query=MeanQuery(5.0, True)),
        "not-planned",
    ),
    "columns that are not there": (
        replace(TASK, steps=0, query=ColumnQuery(5.0, 9, (784,), secure=True)),
        "other-schema",
    ),
    "a metric on samples that were not kept out": (
        round_of(ROUNDS, steps=0, query=MetricQuery(5.0, 1, 0, 1.0, 0.2, secure=True)),
        "other-schema",
    ),
    "another round": (round_of(ROUNDS), "too-many-rounds"),
    "another client": (replace(TASK, client=0), "wrong-node"),
}


@pytest.mark.parametrize("what", TASKS)
def test_a_task_that_the_policy_does_not_allow_is_refused(node: Asked, what: str) -> None:
    task, reason = TASKS[what]
    unmoved(node, work(task), reason)


@pytest.mark.parametrize(
    ("size", "reason"), [({"constant": 500}, "size-not-exact"), ("exact", "rate-too-high")]
)
def test_nobody_learns_how_many_samples_there_are_by_batches_that_cannot_be_drawn(
    opened: Open, size: Any, reason: str
) -> None:
    upload = UpdateRelease(clip=Flat(1.0), noise=SecureGaussian(1.0), sensitivity_bound=2.0)
    node = opened(tell={"size": size})
    node(join(replace(PROPOSAL, events=((upload.event(1), 5),))))
    task = replace(TASK, samples=Release(FixedSize(SAMPLES + 1), Flat(1.0)), update=upload)
    unmoved(node, work(task), reason)
    fits = replace(task, samples=Release(FixedSize(6), Flat(1.0)))
    if size == "exact":
        assert node(work(fits)).header["kind"] == "reply"
    else:
        unmoved(node, work(fits), reason)


def test_another_optimiser_costs_the_same_and_is_done(node: Asked) -> None:
    assert node(work(replace(TASK, local=LocalTraining(Adam(0.1))))).header["kind"] == "reply"
