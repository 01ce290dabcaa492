"""What tests of several systems share: neighbouring data, and checks of runs and releases."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch

import dpfl
from dpfl.algorithms import Algorithm
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.runner import ClientRunner
from dpfl.client.task import RAW_VALUES, ClientTask
from dpfl.data import Federation
from dpfl.privacy import Keyed, NoClip, Release, accountant
from dpfl.tasks import MultiClass
from tests.conftest import MODEL, StopsAfter, ledger_of

Train = Callable[..., dpfl.Result]


def assert_nothing_proven(result: dpfl.Result) -> None:
    """A system without noise learns, and says that its epsilon is unbounded."""
    assert result.accuracy > 0.6
    statement = result.privacy
    assert statement.unit == "none"
    assert statement.proven == math.inf
    assert statement.to_dict()["proven"] == "unbounded"
    assert statement.claimed is None
    assert statement.unaccounted == ("every client's update, without noise",)
    assert not list((result.folder / "ledger").iterdir())
    assert "unbounded" in str(statement)


def assert_sample_level(result: dpfl.Result, claimed_by: str | None) -> None:
    """Eight rounds of three DP-SGD steps with q = 0.2 and noise 0.6, on four clients, by RDP."""
    assert result.accuracy > 0.4
    event = dp.PoissonSampledDpEvent(0.2, dp.GaussianDpEvent(0.6))
    statement = result.privacy
    assert ledger_of(result, "client-00000") == ledger_of(result, "client-00003") == {event: 24}
    assert statement.unit == "sample"
    assert statement.neighbours == "add/remove one"
    assert statement.accountant == "rdp"
    assert statement.adversary.startswith("the server, other clients and the public")
    assert "secure aggregation" not in statement.adversary
    assert statement.proven == pytest.approx(accountant("rdp").epsilon({event: 24}, 1e-5))
    if claimed_by is None:
        assert statement.claimed is None
    else:
        claimed = accountant(claimed_by).epsilon({event: 24}, 1e-5)
        assert statement.claimed == pytest.approx(claimed)
        assert "RDP" in statement.claim
    assert statement.unaccounted == ()
    assert set(statement.per_client) == {f"client-{number:05d}" for number in range(4)}
    assert list(statement.releases.values()) == [24]


def assert_same_on_workers_and_resumed(
    train: Train, federation: Federation, algorithm: Algorithm, epsilon: float | None = None
) -> None:
    """Eight rounds learn inside epsilon; on two workers, and resumed after five, they are equal."""
    options: dict[str, Any] = {"rounds": 8, "epsilon": epsilon, "accountant": "rdp"}
    whole = train(federation, algorithm, **options)
    assert whole.accuracy > 0.3
    assert whole.privacy.proven <= (epsilon or math.inf)
    parallel = train(federation, algorithm, out="two", workers=2, **options)
    assert parallel.model_sha256 == whole.model_sha256
    with pytest.raises(KeyboardInterrupt):
        train(federation, algorithm, out="broken", progress=StopsAfter(5), **options)
    resumed = train(federation, algorithm, out="broken", resume=True, **options)
    assert resumed.model_sha256 == whole.model_sha256
    assert resumed.privacy.proven == whole.privacy.proven
    assert [row.clip for row in resumed.history] == [row.clip for row in whole.history]


def assert_steps_adapt(train: Train, federation: Federation, algorithm: Algorithm) -> None:
    """tau starts at 1, grows, and ends with the privacy budget."""
    result = train(federation, algorithm, epsilon=6.0, rounds=6, accountant="rdp")
    taus = [row.steps for row in result.history]
    assert taus[0] == 1
    assert max(taus) > 1
    assert sum(taus) == result.iterations
    assert result.privacy.proven <= 6.0
    if result.stopped_by == "epsilon":
        events = {algorithm.event(0): result.iterations + 1}
        assert accountant("rdp").epsilon(events, 1e-5) > 6.0


def neighbours() -> tuple[ClientContext, ClientContext]:
    """Client 0 with ten samples, and with one of them replaced by another."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(11, 1, 28, 28, generator=generator), torch.arange(11) % 10
    contexts = [
        ClientContext("run", MODEL, MultiClass(10), ClientDatasets(x, y, (rows,), (10,)), Keyed(0))
        for rows in (torch.arange(10), torch.tensor([*range(9), 10]))
    ]
    return contexts[0], contexts[1]


def raw_values(context: ClientContext, task: ClientTask) -> dict[str, np.ndarray]:
    """What the client answers besides its update."""
    runner = ClientRunner(context)
    try:
        reply = runner.work(task, runner.model.read())
    finally:
        runner.close()
    assert reply.raw is not None
    return dict(reply.raw)


def assert_raw_values_tell_neighbours_apart(algorithm: Algorithm) -> None:
    """Values without noise are a function of the data: equal for equal data, else different."""
    task = ClientTask(
        0,
        0,
        2,
        algorithm.local,
        Release(clip=NoClip()),
        algorithm.samples,
        raw=True,
        raw_values=RAW_VALUES,
    )
    one, other = (raw_values(context, task) for context in neighbours())
    again = raw_values(neighbours()[0], task)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert one["gradients"] != other["gradients"]
    assert not np.array_equal(one["gradient"], other["gradient"])


class Zeros:
    """A linear model with zero weights."""

    name, options = "zeros", ()

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> torch.nn.Module:
        layer = torch.nn.Linear(784, classes)
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        return torch.nn.Sequential(torch.nn.Flatten(), layer)


def opposites(copies: int) -> tuple[ClientContext, ClientContext]:
    """One image twice, once of either class: at zero weights its gradients are each other's
    negative.
    """
    x = torch.full((2, 1, 28, 28), 5.0)
    same = torch.zeros(copies, dtype=torch.int64)
    contexts = [
        ClientContext(
            "run",
            Zeros(),
            MultiClass(2),
            ClientDatasets(x, torch.tensor([0, 1]), (rows,), (copies,)),
            Keyed(0),
        )
        for rows in (same, torch.cat([same[:-1], torch.tensor([1])]))
    ]
    return contexts[0], contexts[1]


def distance_moved(
    algorithm: Algorithm, contexts: tuple[ClientContext, ClientContext], steps: int
) -> float:
    """Distance between the uploads of two neighbours, before their noise."""
    updates = []
    bare = replace(algorithm.updates, noise=None)
    task = ClientTask(0, 0, steps, algorithm.local, Release(), algorithm.samples, update=bare)
    for context in contexts:
        runner = ClientRunner(context)
        updates.append(runner.work(task, runner.model.read()).update)
        runner.close()
    return float((updates[0] - updates[1]).norm())


def assert_noise_of_upload(algorithm: Algorithm) -> None:
    """The noise on an upload is its multiplier times how far one unit moves it."""
    runner = ClientRunner(opposites(5)[0])
    vector, release = runner.model.read(), algorithm.updates
    task = ClientTask(0, 0, 1, algorithm.local, Release(), algorithm.samples, update=release)
    bare = runner.work(replace(task, update=replace(release, noise=None)), vector).update
    draws = [runner.work(replace(task, round=round), vector).update for round in range(40)]
    runner.close()
    stddev = float((torch.stack(draws) - bare).std())
    assert stddev == pytest.approx(release.noise_multiplier * release.sensitivity_bound, rel=0.02)


def assert_far_less_noise_than_stated(algorithm: Algorithm, steps: bool) -> None:
    """The true multiplier is 1 / m in every step, and 1 / sqrt(m) on updates."""
    model = dpfl.models.FlatModel(MODEL.build((1, 28, 28), 10, seed=0))
    release = algorithm.for_model(model.layout).release
    size = 2 ** math.ceil(math.log2(model.layout.size))
    assert release.noise_multiplier == pytest.approx(1 / size if steps else 1 / math.sqrt(size))
    assert release.stated_event(20) != release.event(20)
