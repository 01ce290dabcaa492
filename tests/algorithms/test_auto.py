"""`auto` stays inside its budgets, pays for its mean, and plans its rate from its noise."""

from __future__ import annotations

import math
from pathlib import Path

import dp_accounting as dp
import pytest
import torch
from torch import nn

import dpfl
from dpfl.algorithms import auto, fedavg_dp
from dpfl.client import runner
from dpfl.client.descent.optimisers import SGD, UncalibratedSGD
from dpfl.data import IID, Federation
from dpfl.errors import DpflError
from dpfl.models import FlatModel, scattering_linear
from dpfl.models.architectures import Centre, build_centred_linear
from dpfl.planning.planner import with_planned_rate
from dpfl.privacy import Budget, Flat, Gaussian, Ledger, Limit, Poisson, Release, accountant
from dpfl.privacy.accounting.events import ADD_REMOVE, gaussian
from dpfl.privacy.queries.bounded_sum import scale_down
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.server.coordinator import Coordinator
from tests.conftest import MODEL, StopsAfter
from tests.privacy.forging import forge

FEATURED = scattering_linear()


@pytest.fixture(scope="module")
def few() -> Federation:
    """Two clients with 150 images each."""
    whole = dpfl.data.sample()
    small = dpfl.data.tensors(
        whole.train.x[:300], whole.train.y[:300], whole.test.x[:150], whole.test.y[:150], name="few"
    )
    return small.split(clients=2, how=IID(), seed=0)


def test_it_learns_inside_epsilon_and_its_mean_is_in_the_ledger(train, few):
    result = train(few, auto(sampling_rate=0.5), model=FEATURED, epsilon=20.0, rounds=8)
    assert result.accuracy > 0.5
    assert 19.5 < result.privacy.proven <= 20.0
    assert sorted(result.privacy.releases.values()) == [1, 8]
    assert (
        result.module.centre.running_mean.norm() < 20
    )  # so few samples have no mean that stands out of the noise


def test_the_mean_is_that_of_the_features_up_to_its_noise(train, few):
    from dpfl.run.stages.features import with_features

    result = train(
        few, auto(sampling_rate=0.5, mean_noise=0.05), model=FEATURED, epsilon=1e4, rounds=1
    )
    truth = with_features(FEATURED, few).train.x.flatten(1)
    truth = truth[torch.cat(list(few.clients))].mean(0)
    deviation = 0.05 * math.sqrt(len(truth)) * math.sqrt(2) / 300
    assert truth.norm() > 10
    assert (result.module.centre.running_mean - truth).std() == pytest.approx(deviation, rel=0.05)


def test_the_run_is_the_same_resumed_and_on_two_workers(train, few):
    options = {"model": FEATURED, "epsilon": 20.0, "rounds": 5, "accountant": "rdp"}
    whole = train(few, auto(sampling_rate=0.5), **options)
    with pytest.raises(KeyboardInterrupt):
        train(few, auto(sampling_rate=0.5), out="stopped", progress=StopsAfter(2), **options)
    resumed = train(few, auto(sampling_rate=0.5), out="stopped", resume=True, **options)
    assert resumed.model_sha256 == whole.model_sha256
    assert resumed.privacy.proven == whole.privacy.proven
    assert (
        train(few, auto(sampling_rate=0.5), out="two", workers=2, **options).model_sha256
        == whole.model_sha256
    )


def test_averaged_iterates_are_the_model_and_survive_a_resume(train, federation):
    options = {"model": MODEL, "epsilon": 12.0, "rounds": 4, "accountant": "rdp"}
    plain, averaged = (
        train(federation, auto(sampling_rate=0.3, averaging=p), out=f"p{p}", **options)
        for p in (0.0, 3.0)
    )
    assert averaged.model_sha256 != plain.model_sha256
    assert averaged.privacy.proven == plain.privacy.proven
    with pytest.raises(KeyboardInterrupt):
        train(
            federation,
            auto(sampling_rate=0.3, averaging=3.0),
            out="stopped",
            progress=StopsAfter(2),
            **options,
        )
    resumed = train(
        federation, auto(sampling_rate=0.3, averaging=3.0), out="stopped", resume=True, **options
    )
    assert resumed.model_sha256 == averaged.model_sha256


def test_a_model_that_subtracts_nothing_is_not_asked_for_a_mean(train, federation):
    result = train(federation, auto(sampling_rate=0.3), model=MODEL, epsilon=12.0, rounds=4)
    assert list(result.privacy.releases.values()) == [4]


def test_planned_noise_leaves_room_for_the_mean(few):
    planned = dpfl.planning.planner.with_planned_noise(
        auto(mean_noise=2.0), Budget(epsilon=4.0, rounds=50), 2, "pld"
    )
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp.GaussianDpEvent(2.0))
    step = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(planned.samples.noise.noise_multiplier))
    accountant.compose(dp.SelfComposedDpEvent(step, 50))
    assert 3.98 < accountant.get_epsilon(1e-5) <= 4.0


def test_the_planned_rate_lets_noise_move_the_model_by_the_walk():
    """sum_t eta N / (q n) over K clients by size, in d dimensions."""
    parameters, sizes, rounds = 500, (100, 300), 40
    algorithm = auto(noise_multiplier=2.0, tau=2, walk=10.0)
    planned = with_planned_rate(algorithm, Budget(epsilon=3.0, rounds=rounds), sizes, parameters)
    assert isinstance(planned.local.optimiser, SGD)
    rng = torch.Generator().manual_seed(0)
    walk = torch.zeros(parameters)
    for _ in range(2 * rounds):
        for size in sizes:
            noise = 2.0 * planned.samples.clip.clip_norm * torch.randn(parameters, generator=rng)
            walk += size / sum(sizes) * planned.local.optimiser.rate * noise / (0.1 * size)
    assert float(walk.norm()) == pytest.approx(10.0, rel=0.1)


def test_a_given_rate_stays_and_an_unplanned_one_is_refused():
    assert auto(rate=0.7).local.optimiser == SGD(0.7)
    with pytest.raises(DpflError, match="give a rate"):
        _ = UncalibratedSGD(10.0).rate
    with pytest.raises(DpflError, match=r"budget\.rounds"):
        with_planned_rate(auto(noise_multiplier=1.0), Budget(epsilon=1.0), (10,), 10)
    assert (
        with_planned_rate(fedavg_dp(rate=0.3), Budget(epsilon=1.0), (10,), 10).local.optimiser.rate
        == 0.3
    )


def test_a_mean_is_only_asked_for_where_steps_protect_samples():
    from dataclasses import replace

    private = Release(Poisson(0.1), Flat(1.0), Gaussian(1.0))
    with pytest.raises(DpflError, match="The released mean protects one sample"):
        replace(auto(noise_multiplier=1.0), samples=None, clients=private, centre=MeanQuery(1.0))
    assert auto(noise_multiplier=1.0).with_secure_noise().centre == MeanQuery(20.0, secure=True)


# The mean in the ledgers: one query, one debit, and only for clients that can go on


def centred(size: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return build_centred_linear((size,), 3)


@pytest.fixture(scope="module")
def tiny() -> Federation:
    """Three clients with 40 samples of 16 numbers each."""
    rng = torch.Generator().manual_seed(0)
    x, y = 1 + torch.randn(150, 16, generator=rng), torch.arange(150) % 3
    return Federation.from_tensors(
        [(x[i : i + 40], y[i : i + 40]) for i in (0, 40, 80)], (x[120:], y[120:])
    )


OWN = auto(sampling_rate=0.5, mean_noise=1.0)


class StoppedError(Exception):
    pass


def stop(*_: object) -> None:
    raise StoppedError


def counts_of(folder: Path) -> list[list[int]]:
    """A client's counts of each event, in the order of their first debits."""
    counts = []
    for path in sorted(folder.glob("client-*.sqlite")):
        ledger = Ledger.read(path)
        counts.append(list(ledger.spending().values()))
        ledger.close()
    return counts


@pytest.mark.parametrize("place", ["_find_clips", "aggregate"])
def test_a_run_killed_before_its_first_checkpoint_has_the_same_mean_when_resumed(
    train, tiny, monkeypatch, place
):
    options = {"epsilon": 20.0, "rounds": 3}
    whole = train(tiny, OWN, model=centred(), out="whole", **options)
    with monkeypatch.context() as patched:
        patched.setattr(Coordinator, place, stop)
        with pytest.raises(StoppedError):
            train(tiny, OWN, model=centred(), out="killed", **options)
    resumed = train(tiny, OWN, model=centred(), out="killed", resume=True, **options)
    assert resumed.model_sha256 == whole.model_sha256
    assert (
        counts_of(resumed.folder / "ledger") == counts_of(whole.folder / "ledger") == [[1, 3]] * 3
    )


def test_under_system_entropy_what_is_shown_counts_a_mean_and_steps_that_were_made_twice(
    train, tiny, monkeypatch, tmp_path
):
    options = {"epsilon": 20.0, "rounds": 4, "entropy": "system"}
    with monkeypatch.context() as patched:
        patched.setattr(Coordinator, "aggregate", stop)
        with pytest.raises(StoppedError):
            train(tiny, OWN, model=centred(), **options)
    with pytest.raises(KeyboardInterrupt):
        train(tiny, OWN, model=centred(), resume=True, progress=StopsAfter(1), **options)
    assert counts_of(tmp_path / "run" / "ledger") == [[2, 2]] * 3
    result = train(tiny, OWN, model=centred(), resume=True, **options)
    ledger = Ledger.read(result.folder / "ledger" / "client-00000.sqlite")
    mean, step = ledger.spending()
    ledger.close()
    assert mean == gaussian(1.0)
    truth = [
        accountant("pld").epsilon({mean: 2, step: 1 + row.iterations}, 1e-5)
        for row in result.history[:2]
    ]
    assert all(
        row.epsilon >= least - 1e-9 for row, least in zip(result.history, truth, strict=False)
    )
    assert result.privacy.proven <= 20.0


def test_a_client_without_room_for_a_step_is_not_asked_to_pay_for_the_mean(train, tiny, tmp_path):
    """The mean alone costs epsilon 4.4, with one step it costs 10."""
    Ledger.open(
        tmp_path / "client-00001.sqlite", "client-00001", "sample", ADD_REMOVE, Limit(6.0, 1e-5)
    ).close()
    result = train(tiny, OWN, model=centred(), ledger=tmp_path, epsilon=20.0, rounds=3)
    assert result.privacy.per_client["client-00001"] == 0.0
    assert counts_of(tmp_path) == [[1, 3], [], [1, 3]]


def test_a_client_that_does_not_answer_is_named_and_the_others_have_the_mean(
    train, tiny, monkeypatch
):
    answer = runner.answer_query

    def broken(workspace, task, *rest):
        if task.client == 1:
            raise OSError("no disk")
        return answer(workspace, task, *rest)

    monkeypatch.setattr(runner, "answer_query", broken)
    result = train(
        tiny, auto(sampling_rate=0.5, mean_noise=0.01), model=centred(), epsilon=1e6, rounds=1
    )
    assert list(result.lost_replies) == [
        "before round 1, client 1: it failed (OSError), its own log says why"
    ]
    truth = scale_down(tiny.train.x[torch.cat([tiny.clients[0], tiny.clients[2]])], 4.0).mean(0)
    assert (result.module.centre.running_mean - truth).norm() < 0.02
    assert counts_of(result.folder / "ledger") == [[1, 1]] * 3, "it was debited before it failed"


def test_the_mean_counts_among_the_bytes_like_a_round(train, tiny):
    one = 2 * 4 * FlatModel(centred()).layout.size * 3
    result = train(tiny, OWN, model=centred(), epsilon=20.0, rounds=3, bytes=3 * one)
    assert (result.rounds, result.stopped_by) == (2, "bytes")
    assert [row.bytes for row in result.history] == [2 * one, 3 * one]


def test_fault_the_debit_of_the_mean_stands_for_one_that_was_lost(train, tiny, tmp_path):
    options = {"epsilon": 20.0, "rounds": 4}
    with pytest.raises(KeyboardInterrupt):
        train(tiny, OWN, model=centred(), progress=StopsAfter(2), **options)
    forge(
        tmp_path / "run" / "ledger" / "client-00001.sqlite",
        "DELETE FROM debits WHERE id = (SELECT MAX(id) FROM debits)",
    )
    with pytest.raises(DpflError, match=r"client-00001\.sqlite has lost debits"):
        train(tiny, OWN, model=centred(), resume=True, **options)


def test_an_entry_of_another_size_is_refused_before_anyone_has_paid(train, tiny, tmp_path):
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.centre, self.last = nn.Linear(16, 5), Centre(5), nn.Linear(5, 3)

        def forward(self, x):
            return self.last(self.centre(self.first(x)))

    with pytest.raises(DpflError, match="has 5 numbers, but a sample has 16"):
        train(tiny, OWN, model=Inner(), epsilon=20.0, rounds=2)
    assert not (tmp_path / "run").exists()


def test_a_second_run_on_the_same_ledgers_pays_for_its_own_mean_beside_the_first(
    train, tiny, tmp_path
):
    algorithm = auto(sampling_rate=0.5, mean_noise=3.0, noise_multiplier=2.0, rate=1.0)
    first, second = (
        train(tiny, algorithm, model=centred(), out=out, ledger=tmp_path, rounds=2)
        for out in ("a", "b")
    )
    assert counts_of(tmp_path) == [[2, 4]] * 3
    step = algorithm.samples.event(40)
    truth = [
        accountant("pld").epsilon({gaussian(3.0): 2, step: 2 + row.iterations}, 1e-5)
        for row in second.history
    ]
    assert all(
        row.epsilon >= least - 1e-9 for row, least in zip(second.history, truth, strict=True)
    )
    means = [result.module.centre.running_mean for result in (first, second)]
    assert not torch.equal(*means), "two runs with one seed have noise of their own"


def test_a_mean_that_costs_as_much_as_a_step_takes_the_place_of_one(train, tiny):
    """At a rate of 1 both are the same event: of the five that the budget allows, four are left for
    steps.
    """
    algorithm = auto(sampling_rate=1.0, mean_noise=2.0, noise_multiplier=2.0, rate=1.0)
    budget = accountant("pld").epsilon({gaussian(2.0): 5}, 1e-5) + 1e-6
    result = train(tiny, algorithm, model=centred(), epsilon=budget)
    assert (result.iterations, result.stopped_by) == (4, "epsilon")
    assert counts_of(result.folder / "ledger") == [[5]] * 3
    assert result.privacy.proven <= budget
