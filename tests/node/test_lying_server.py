"""A server that keeps to the words and breaks the rules behind them: parts that it would never put
together itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpfl import models
from dpfl.errors import DpflError
from dpfl.models import FlatModel
from dpfl.node.load_data import schema_digest
from dpfl.node.service import Service
from dpfl.privacy import FixedSize, Flat, Poisson, Release
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.noises.secure_noise import SecureGaussian
from dpfl.privacy.queries.metric import MetricQuery
from tests.node.loopback import (
    PROPOSAL,
    ROUNDS,
    SIZE,
    TASK,
    Asked,
    Open,
    join,
    new_node,
    round_of,
    work,
    write_policy,
)
from tests.privacy.queries.subject import RowSubject

SMALL = 2
"""Numbers of a linear model of one column."""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Nodes that are closed at the end; the same folder again where it is there."""
    live: list[Service] = []

    def start(**changes: Any) -> Asked:
        folder = tmp_path / "b"
        policy = write_policy(folder, **changes) if folder.exists() else new_node(folder, **changes)
        live.append(Service.open(policy))
        return Asked(folder, live[-1])

    yield start
    for service in live:
        service.close()


def test_a_metric_does_not_say_one_number_of_each_sample_ten_thousand_times(
    tmp_path: Path, opened: Open
) -> None:
    """With noise for one of so many cells, the mean of all would have a hundredth of it."""
    table = {"label": "visits", "task": "counts", "columns": {"age": {"low": 0, "high": 99}}}
    (new_node(tmp_path / "b").parent / "own.csv").write_text("age,visits\n" + "40,2\n" * 60)
    node = opened(data={"name": "own.csv", "classes": None, **table}, allow={"models": ["linear"]})
    held, metric = node.service.data, MetricQuery(5.0, 1, 0, 1.0, 0.0, secure=True)
    words = {
        "model": "linear",
        "options": (),
        "learning": held.task,
        "shape": held.shape,
        "schema": schema_digest(held),
    }
    node(join(replace(PROPOSAL, **words, events=((metric.event, 1),))))
    for numbers, cells in ((0, 10_000), (0, 2), (2, 0), (0, 0)):
        task = round_of(ROUNDS, steps=0, query=replace(metric, numbers=numbers, cells=cells))
        assert node.refused(work(task, np.zeros(SMALL, np.float32))) == "uncovered"
    assert node.spending() == {}
    honest = node(work(round_of(ROUNDS, steps=0, query=metric), np.zeros(SMALL, np.float32)))
    assert honest.arrays["raw_answer"].shape == (1,)


def test_a_metric_counts_each_sample_with_as_many_numbers_as_its_noise_is_for() -> None:
    for query in (MetricQuery(1.0, 0, 5, 1.0, 0.0), MetricQuery(1.0, 1, 1, 1.0, 0.0)):
        with pytest.raises(DpflError, match="counts with 1 numbers"):
            query.answer(RowSubject(torch.ones(3, 1), 3), np.random.default_rng(0))


def test_a_slope_of_haar_coefficients_is_refused(opened: Open) -> None:
    """Their clip does not bound the norm that a slope is."""
    haar = Release(Poisson(0.2), HaarClip(1.0, ends=(SIZE,)), HaarNoise(5.0, ends=(SIZE,)))
    node = opened(tell={"secure": False})
    assert (
        node(join(replace(PROPOSAL, noise="floating-point", events=((haar.event(60), 9),)))).header[
            "kind"
        ]
        == "joined"
    )
    assert node.refused(work(round_of(0, samples=haar, slope=True))) == "uncovered"
    assert node(work(round_of(0, samples=haar))).header["kind"] == "reply"


def test_a_size_that_was_declared_under_another_policy_is_not_taken_for_exact(opened: Open) -> None:
    """Of 500 samples a batch of 6 would cost less than of 60."""
    samples = Release(FixedSize(6), Flat(1.0), SecureGaussian(4.0))
    limits = {"neighbours": "replace one"}
    node = opened(tell={"size": {"constant": 500}}, limits=limits)
    node(join(replace(PROPOSAL, neighbours="replace one", events=((samples.event(500), 9),))))
    node.service.close()
    again = opened(tell={"size": "exact"}, limits=limits)
    assert again.refused(work(replace(TASK, samples=samples))) == "size-not-exact"
    assert again.spending() == {}


def test_a_run_that_a_changed_policy_no_longer_allows_is_not_worked_for(opened: Open) -> None:
    node = opened()
    node(join())
    node(work())
    spent = node.spending()
    for changes, reason in (
        ({"allow": {"systems": ["fedavg"]}}, "system-not-allowed"),
        ({"allow": {"models": ["linear"]}}, "model-not-allowed"),
        ({"allow": {"least_noise_multiplier": 1.1}}, "too-little-noise"),
    ):
        node.service.close()
        node = opened(**changes)
        assert node.refused(work(round_of(1))) == reason
    assert node.spending() == spent


def test_a_vocabulary_that_the_server_chose_does_not_say_whether_a_sample_is_beyond_it(
    tmp_path: Path, opened: Open
) -> None:
    """One that has no place in an embedding would end the training of its batch, and the failure
    would say that it is there.
    """
    folder = new_node(tmp_path / "b").parent
    x, y = np.zeros((60, 5), np.float32), np.arange(60) % 10
    x[:20, 3], x[20:40, 2] = 300.0, -1.0
    np.savez(folder / "own.npz", x=x, y=y)
    node = opened(allow={"models": ["gru"]})
    options = (("width", 2), ("vocabulary", 200))
    proposed = replace(PROPOSAL, model="gru", options=options, shape=(5,))
    assert node(join(proposed)).header["kind"] == "joined"
    size = FlatModel(models.gru(**dict(options)).build((5,), 10, 0)).layout.size
    for number in range(ROUNDS):
        assert node(work(round_of(number), np.zeros(size, np.float32))).header["kind"] == "reply"
