"""`auto`: inside its budgets, the mean paid for, the rate from the noise, the same however it runs."""

from __future__ import annotations

import math

import dp_accounting as dp
import pytest
import torch

import dpfl
from dpfl.algorithms import auto, fedavg_dp
from dpfl.client.optimisers import SGD, NotPlanned, PlannedSGD
from dpfl.data import IID, Federation
from dpfl.errors import DpflError
from dpfl.models import scattering_linear
from dpfl.planner import with_planned_rate
from dpfl.privacy import Budget, Flat, Gaussian, Poisson, Release
from dpfl.privacy.mean import MeanSurvey
from tests.conftest import MODEL, StopsAfter

FEATURED = scattering_linear()


@pytest.fixture(scope="module")
def few() -> Federation:
    """Two clients with 150 images each."""
    whole = dpfl.data.sample()
    small = dpfl.data.tensors(whole.train.x[:300], whole.train.y[:300], whole.test.x[:150], whole.test.y[:150], name="few")
    return small.split(clients=2, how=IID(), seed=0)


def test_it_learns_inside_epsilon_and_its_mean_is_in_the_books(train, few):
    result = train(few, auto(sampling_rate=0.5), model=FEATURED, epsilon=20.0, rounds=8)
    assert result.accuracy > 0.5
    assert 19.5 < result.privacy.proven <= 20.0
    assert sorted(result.privacy.releases.values()) == [1, 8]
    assert result.module.centre.running_mean.norm() < 20  # so few samples have no mean that stands out of the noise


def test_the_mean_is_that_of_the_features_up_to_its_noise(train, few):
    from dpfl.prepare import with_features

    result = train(few, auto(sampling_rate=0.5, mean_noise=0.05), model=FEATURED, epsilon=1e4, rounds=1)
    truth = with_features(FEATURED, few).train.x.flatten(1)
    truth = truth[torch.cat(list(few.clients))].mean(0)
    deviation = 0.05 * math.sqrt(len(truth)) * math.sqrt(2) / 300
    assert truth.norm() > 10
    assert (result.module.centre.running_mean - truth).std() == pytest.approx(deviation, rel=0.05)


def test_the_run_is_the_same_resumed_and_on_two_workers(train, few):
    options = {"model": FEATURED, "epsilon": 20.0, "rounds": 5}
    whole = train(few, auto(sampling_rate=0.5), **options)
    with pytest.raises(KeyboardInterrupt):
        train(few, auto(sampling_rate=0.5), out="stopped", progress=StopsAfter(2), **options)
    resumed = train(few, auto(sampling_rate=0.5), out="stopped", resume=True, **options)
    assert resumed.model_sha256 == whole.model_sha256
    assert resumed.privacy.proven == whole.privacy.proven
    assert train(few, auto(sampling_rate=0.5), out="two", workers=2, **options).model_sha256 == whole.model_sha256


def test_a_model_that_subtracts_nothing_is_not_asked_for_a_mean(train, federation):
    result = train(federation, auto(sampling_rate=0.3), model=MODEL, epsilon=12.0, rounds=4)
    assert list(result.privacy.releases.values()) == [4]


def test_planned_noise_leaves_room_for_the_mean(few):
    planned = dpfl.planner.with_planned_noise(auto(mean_noise=2.0), Budget(epsilon=4.0, rounds=50), 2, "pld")
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp.GaussianDpEvent(2.0))
    step = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(planned.samples.noise.multiplier))
    accountant.compose(dp.SelfComposedDpEvent(step, 50))
    assert 3.98 < accountant.get_epsilon(1e-5) <= 4.0


def test_the_planned_rate_lets_noise_move_the_model_by_the_walk():
    """sum_t eta N / (q n) over K clients by size, in d dimensions."""
    parameters, sizes, rounds = 500, (100, 300), 40
    given = auto(noise_multiplier=2.0, tau=2, walk=10.0)
    found = with_planned_rate(given, Budget(epsilon=3.0, rounds=rounds), sizes, parameters)
    assert isinstance(found.local.optimiser, SGD)
    rng = torch.Generator().manual_seed(0)
    walk = torch.zeros(parameters)
    for _ in range(2 * rounds):
        for size in sizes:
            noise = 2.0 * found.samples.clip.level * torch.randn(parameters, generator=rng)
            walk += size / sum(sizes) * found.local.optimiser.rate * noise / (0.1 * size)
    assert float(walk.norm()) == pytest.approx(10.0, rel=0.1)


def test_a_given_rate_stays_and_an_unplanned_one_is_refused():
    assert auto(rate=0.7).local.optimiser == SGD(0.7)
    with pytest.raises(NotPlanned):
        _ = PlannedSGD(10.0).rate
    with pytest.raises(DpflError, match=r"budget\.rounds"):
        with_planned_rate(auto(noise_multiplier=1.0), Budget(epsilon=1.0), (10,), 10)
    assert with_planned_rate(fedavg_dp(rate=0.3), Budget(epsilon=1.0), (10,), 10).local.optimiser.rate == 0.3


def test_a_mean_is_only_asked_for_where_steps_protect_samples():
    from dataclasses import replace

    private = Release(Poisson(0.1), Flat(1.0), Gaussian(1.0))
    with pytest.raises(DpflError, match="mean of the samples"):
        replace(auto(noise_multiplier=1.0), samples=None, clients=private, centre=MeanSurvey(1.0))
    with pytest.raises(DpflError, match="means"):
        auto(noise_multiplier=1.0).secured()
