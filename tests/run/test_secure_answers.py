"""Beside updates in secure sums: what clients are asked once, the count of a quantile clip, and
systems that choose tau.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

import dpfl
from dpfl.algorithms import ali_dpfl, als_dpfl, auto, custom, dp_fedavg, fedavg_dp
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientTask, SecureSumTerms
from dpfl.data import IID, Federation
from dpfl.models.architectures import build_centred_linear
from dpfl.privacy import Gaussian, PoissonSize, Quantile, Release
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.server.aggregation.round_sum import AnswerSum, RoundSum, add_integers
from tests.conftest import ledger_of, small_source
from tests.run.test_secure_sums import events, losing

Train = Callable[..., dpfl.Result]
WIDTH = 400
ASKING = auto(sampling_rate=0.5, noise_multiplier=1.0, rate=0.1, mean_noise=1.0)


@cache
def ten() -> Federation:
    """Ten clients with 20 samples of so many numbers each, whose mean is 3 everywhere."""
    x, y = (
        3 + torch.randn(210, WIDTH, generator=torch.Generator().manual_seed(0)),
        torch.arange(210) % 3,
    )
    return Federation.from_tensors(
        [(x[i : i + 20], y[i : i + 20]) for i in range(0, 200, 20)], (x[200:], y[200:])
    )


def centred() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_centred_linear((WIDTH,), 3)


def mean_of(result: dpfl.Result) -> np.ndarray:
    return result.module.centre.running_mean.double().numpy()


@pytest.mark.parametrize(
    ("survivors", "colluders", "lost", "variance"),
    [(10, 0, (), 1.0), (8, 0, (2, 7), 1.0), (8, 1, (2, 7), 8 / 7), (8, 1, (), 10 / 7)],
)
def test_the_mean_has_the_noise_of_one_party(
    train: Train, monkeypatch, survivors, colluders, lost, variance
):
    """A chi-square test; without secure sums the sum of ten answers has ten times the variance."""
    losing(monkeypatch, *lost)
    quiet, noisy = ASKING, replace(ASKING, centre=MeanQuery(100.0))
    found, left = [], 20 * (10 - len(lost))
    monkeypatch.setattr(
        MeanQuery, "estimate", lambda self, said: said.mean.float()
    )  # as it is, with all of its noise
    for number, system in enumerate((quiet, noisy)):
        options = {
            "aggregation": "secure",
            "survivors": survivors,
            "colluders": colluders,
            "masks": bool(lost),
        }
        result = train(ten(), system, model=centred(), out=str(number), rounds=1, **options)
        found.append(mean_of(result))
        asked = [client for client in range(10) if client not in lost]
        assert all(
            ledger_of(result, ten().names[client])[gaussian(system.centre.noise_multiplier)] == 1
            for client in asked
        )
    noise = (found[1] - found[0]) * left / math.sqrt(WIDTH)  # both have some, of 1 and of 100
    low, high = chi2.ppf([1e-5, 1 - 1e-5], WIDTH)
    assert low < (noise**2).sum() / (variance * (100.0**2 + 1)) < high


def test_what_is_noise_in_a_mean_is_known(train: Train):
    """Shrunk by the noise of the shares that arrived; where one party's noise is little, ten
    parties' was not.
    """
    system, errors = replace(ASKING, centre=MeanQuery(5.0)), {}
    for kind in ("plain", "secure"):
        found = mean_of(train(ten(), system, model=centred(), out=kind, rounds=1, aggregation=kind))
        errors[kind] = np.linalg.norm(found - 0.95)  # samples are scaled down to 1 a number
    assert errors["secure"] < 0.7 * errors["plain"]


def test_too_few_answers_are_paid_for_and_open_nothing(train: Train, monkeypatch):
    losing(monkeypatch, 1, 2, 3)
    result = train(ten(), ASKING, model=centred(), rounds=1, aggregation="secure", survivors=8)
    assert "before round 1: 7 clients are left of 8, so nothing was opened" in result.lost_replies
    assert not mean_of(result).any()
    assert [sum(spent.values()) for spent in events(result.folder)] == [2, 0, 0, 0, *[2] * 6]


def test_a_metric_is_of_the_sum_alone(train: Train):
    """Without a public test set: what is asked at the end has the noise of one party, and every
    ledger pays for it.
    """
    bare = replace(ten(), test=None)
    options = {"metric": dpfl.PrivateMetric(noise=6.0, held_out=0.0), "rounds": 1, "masks": True}
    result = train(bare, fedavg_dp(tau=1, noise_multiplier=1.0), aggregation="secure", **options)
    alone = train(
        bare,
        fedavg_dp(tau=1, noise_multiplier=1.0),
        out="plain",
        **{**options, "masks": False},
    )
    wide, narrow = (
        (high - low) for low, high in (alone.intervals["accuracy"], result.intervals["accuracy"])
    )
    assert narrow < 0.7 * wide
    assert all(spent[gaussian(6.0)] == 1 for spent in events(result.folder))
    assert events(result.folder) == events(alone.folder)


@pytest.mark.parametrize(
    "query",
    [MeanQuery(3.0), ColumnQuery(3.0, 4, (0, 2), ((1, 10),)), MetricQuery(3.0, 2, 10, 4.0, 0.0)],
)
def test_scales_and_metrics_are_counted_for_the_noise_that_they_have(query):
    width = 7 if isinstance(query, MeanQuery) else query.width
    sums = AnswerSum(query, NoiseShares(8, 1), width, (20,) * 10)
    rng = np.random.default_rng(0)
    means = [
        sums.mean(
            {client: sums.integer_sum.numbers(np.zeros(width), rng) for client in range(9)},
            add_integers,
            0,
        )
        for _ in range(300)
    ]
    said = means[0]
    assert said.units == 180
    assert said.noise == pytest.approx(3.0 * query.sensitivity(width) * math.sqrt(9 / 7) / 180)
    assert np.std([one.mean.numpy() for one in means]) == pytest.approx(said.noise, rel=0.06)


def test_a_share_of_an_answers_noise_is_for_a_secure_sum_only():
    release, summed = (
        replace(ASKING.samples, noise_shares=NoiseShares(8, 1)),
        SecureSumTerms(1.0, 100.0, 10),
    )
    task = ClientTask(
        0, 0, 0, ASKING.local, ASKING.clients, release, query=ASKING.centre, secure_sum=summed
    )
    assert "no secure sum hides it" in DisclosureRules().refusal(task)
    assert DisclosureRules(sums=True).refusal(task) == ""
    for wrong in (replace(task, query=LabelQuery(1.0)), replace(task, samples=ASKING.samples)):
        assert "answers that are no mean" in DisclosureRules(sums=True).refusal(wrong)
    assert DisclosureRules().refusal(replace(task, secure_sum=None)) == ""  # with all of its noise


def test_label_shares_keep_all_of_their_noise_and_the_statement_says_so(train: Train):
    system = custom(tau=1, weights="similarity", noise_multiplier=1.0)
    result = train(ten(), system, rounds=1, aggregation="secure")
    assert any(
        "each client's own, seen with all of their noise" in fact
        for fact in result.privacy.assumptions
    )


# The count of a quantile clip


QUANTILE = Release(
    PoissonSize(5), Quantile(0.7, count_noise=0.8), Gaussian(1.3), noise_shares=NoiseShares(8, 1)
)


@given(
    inside=st.booleans(),
    length=st.floats(0, 1),
    level=st.floats(1e-3, 1e3),
    z=st.floats(0.05, 1.4),
    s=st.floats(0.8, 50),
)
def test_a_client_moves_vector_and_count_together_by_what_the_event_says(
    inside, length, level, z, s
):
    """Neighbours: with the client, clipped or not, and without it; over the deviation that all
    numbers have.
    """
    release = replace(QUANTILE, clip=Quantile(level, count_noise=s), noise=Gaussian(z))
    vector = torch.tensor([0.6, 0.0, 0.8]) * level * length
    moved = release.into_sum(vector, inside) - release.into_sum(torch.zeros(3))
    assert float(moved.norm()) / release.stddev() <= (1 + 1e-6) / z
    assert float(moved.norm()) / release.stddev() >= 0.999 / (2 * s)
    sums = RoundSum.of_updates(release, 10)
    assert float(moved.abs().max()) <= sums.bound * (1 + 1e-6)  # the count is never cut off


def test_the_worst_client_uses_all_of_it():
    moved = QUANTILE.into_sum(torch.tensor([0.0, 0.7]), False) - QUANTILE.into_sum(torch.zeros(2))
    assert float(moved.norm()) / QUANTILE.stddev() == pytest.approx(
        1 / QUANTILE.noise_multiplier, rel=1e-6
    )


def test_the_count_in_the_sum_is_that_of_the_clients_and_has_its_noise():
    layout = dpfl.models.FlatModel(torch.nn.Linear(1, 1, bias=False), ten().task).layout
    sums, rng = RoundSum.of_updates(QUANTILE, 10), np.random.default_rng(0)
    drawn = [True, True, True, False, None, None, True, False]
    found = []
    for _ in range(400):
        sent = {
            client: sums.integer_sum.numbers(QUANTILE.into_sum(torch.zeros(1), inside).numpy(), rng)
            for client, inside in enumerate(drawn)
        }
        assert sums.message_size(layout) == 2
        found.append(sums.update(sent, add_integers, 0, layout)[1])
    assert np.mean(found) == pytest.approx(1.0, abs=0.2)  # 4 of 6 are inside: 4/2 - 2/2
    assert np.std(found) == pytest.approx(0.8 * math.sqrt(8 / 7), rel=0.15)


def test_a_quantile_clip_follows_its_count_under_masks(train: Train):
    """The same events as at a trusted server, and a level that comes down to where half of the
    updates are.
    """
    images = small_source().split(clients=10, how=IID(), seed=0)
    system = dp_fedavg(clipping="quantile", clip=5.0, count_noise=0.6, noise_multiplier=1.0, tau=1)
    options = {"rounds": 4, "survivors": 8, "colluders": 1, "aggregation": "secure"}
    shared = train(images, system, out="shared", masks=True, **options)
    again = train(images, system, out="again", **options)
    trusted = train(images, system, out="trusted", rounds=4)
    assert shared.model_sha256 == again.model_sha256
    assert events(shared.folder) == events(trusted.folder) * 10
    assert shared.privacy.proven == trusted.privacy.proven


# Systems that choose tau


@pytest.mark.parametrize("make", [ali_dpfl, als_dpfl])
def test_limited_to_one_step_they_are_one_step_of_dp_sgd(
    train: Train, monkeypatch, make: Callable[..., Any]
):
    system = make(most_tau=1, noise_multiplier=1.0, sampling_rate=0.1)
    asked: list[bool] = []
    work = ClientRunner.work
    monkeypatch.setattr(
        ClientRunner,
        "work",
        lambda self, task, *more: asked.append(task.slope or task.raw) or work(self, task, *more),
    )
    images = small_source().split(clients=10, how=IID(), seed=0)
    shared = train(images, system, rounds=3, out="shared", aggregation="secure", masks=True)
    fixed = fedavg_dp(tau=1, noise_multiplier=1.0, sampling_rate=0.1, rate=0.5)
    alone = train(small_source().split(clients=1, how=IID(), seed=0), fixed, rounds=3, out="alone")
    assert events(shared.folder) == events(alone.folder) * 10
    assert shared.privacy.proven == alone.privacy.proven == shared.privacy.used
    assert not any(asked)
    assert (
        shared.model_sha256
        == train(images, fixed, rounds=3, out="fixed", aggregation="secure").model_sha256
    )


@pytest.mark.parametrize("make", [ali_dpfl, als_dpfl])
def test_tau_is_never_above_the_most(
    train: Train, federation: Federation, make: Callable[..., Any]
):
    system = make(most_tau=3, noise_multiplier=1.0)
    assert system.steps.total(10) == 30
    result = train(federation, system, epsilon=8.0, rounds=4)
    assert result.iterations <= 12
    for wrong in (0, 101, True):
        with pytest.raises(dpfl.DpflError, match="most_tau"):
            make(most_tau=wrong)
