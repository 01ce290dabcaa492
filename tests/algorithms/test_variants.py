"""Published systems and their sound variants: both learn inside both budgets and resume; only one
proves its epsilon.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch

import dpfl
from dpfl.algorithms import (
    ALGORITHMS,
    ali_dpfl,
    als_dpfl,
    dp_fedavg_wav,
    dp_sgd_wav,
    from_name,
    hw_dpfl,
    ldp_fl,
    options_of,
)
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.runner import ClientRunner
from dpfl.client.task import RAW_VALUES, ClientTask
from dpfl.data import Federation
from dpfl.engines import one_thread
from dpfl.errors import DpflError
from dpfl.privacy import Keyed, Ledger, NoClip, Release, accountant
from dpfl.privacy.accounting.published_claims import HellingerNoise
from dpfl.tasks import MultiClass
from tests.conftest import MODEL, StopsAfter

Train = Callable[..., dpfl.Result]
EPSILON, ROUNDS = 12.0, 8
CLIENTS = 4

# Enough noise for epsilon, rates at which 250 images a client are learnt in eight rounds.
OPTIONS: dict[str, dict[str, Any]] = {
    "ali-dpfl": {"sampling_rate": 0.2, "noise_multiplier": 0.8, "rate": 1.0, "mu": None},
    "als-dpfl": {"sampling_rate": 0.2, "noise_multiplier": 0.8, "rate": 0.5},
    "hw-dpfl": {"batch_size": 200, "rate": 1.0, "samples": 250},
    "dp-sgd-wav": {"sampling_rate": 0.3, "rate": 1.0, "tau": 3},
    "dp-fedavg-wav": {"tau": 8, "clip": 2.0, "batch_size": 32},
    "dp-fedavg": {"tau": 8, "clip": 2.0, "pilot": 2},
    "nbafl": {
        "clip": 6.0,
        "samples": 250,
        "clients": 4,
        "rounds": ROUNDS,
        "exposures": ROUNDS,
        "tau": 8,
    },
    "dyn-dp-sgd": {"sampling_rate": 0.3, "rate": 1.0, "tau": 2, "phases": 4},
    "dyn-dp-fedavg": {"tau": 8, "phases": 4},
}
# The noise that these need for a sensible epsilon lets them learn nothing in eight rounds: only the
# loop is tested, with less.
HOPELESS = {
    ("dp-sgd-wav", "sound"): 2e-3,
    ("dp-fedavg-wav", "sound"): 1e-3,
    ("hw-dpfl", "published"): 2e-3,
    ("nbafl", "sound"): 1e-3,
    ("nbafl", "published"): 1e-3,
    ("dyn-dp-fedavg", "sound"): 0.4,
    ("dyn-dp-fedavg", "published"): 0.4,
}
NEARLY_TRUE = {"dyn-dp-sgd", "dyn-dp-fedavg"}
"""Their noise is what they state; only the limit theorem that they count it with is no bound."""
VARIANTS = [(name, variant) for name in OPTIONS for variant in ("sound", "published")]


def system(name: str, variant: str) -> dpfl.algorithms.Algorithm:
    noise = HOPELESS.get((name, variant))
    return from_name(
        name, variant=variant, **OPTIONS[name] | ({"noise_multiplier": noise} if noise else {})
    )


def crowd_for(name: str, federation: Federation, crowd: Federation) -> Federation:
    return crowd if name in ("dp-fedavg", "dp-fedavg-wav", "dyn-dp-fedavg") else federation


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_a_variant_learns_inside_both_budgets_resumes_and_says_what_is_proven(
    train: Train, federation: Federation, crowd: Federation, name: str, variant: str
) -> None:
    made, data = system(name, variant), crowd_for(name, federation, crowd)
    options = {
        "rounds": ROUNDS,
        "accountant": "rdp",
        "epsilon": None if (name, variant) in HOPELESS else EPSILON,
    }
    result = train(data, made, **options)
    assert result.accuracy > 0.3, "well above the 0.1 of chance"
    assert result.rounds <= ROUNDS
    statement = result.privacy
    if variant == "sound":
        assert statement.proven <= (options["epsilon"] or math.inf)
        assert statement.proven < math.inf
        assert statement.unaccounted == ()
    else:
        assert statement.claimed <= (options["epsilon"] or math.inf)
        assert statement.proven > statement.claimed * (1 if name in NEARLY_TRUE else 10)
        assert (statement.proven == math.inf) == bool(statement.unaccounted)
        assert all(row.epsilon is None or row.epsilon == statement.proven for row in result.history)
    with pytest.raises(KeyboardInterrupt):
        train(data, made, out="broken", progress=StopsAfter(3), **options)
    resumed = train(data, made, out="broken", resume=True, **options)
    assert resumed.model_sha256 == result.model_sha256
    assert resumed.privacy.proven == statement.proven
    assert [row.steps for row in resumed.history] == [row.steps for row in result.history]


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - NEARLY_TRUE))
def test_the_ledger_of_a_published_system_holds_the_truth(
    train: Train, federation: Federation, crowd: Federation, name: str
) -> None:
    epsilon = None if (name, "published") in HOPELESS else EPSILON
    result = train(
        crowd_for(name, federation, crowd),
        system(name, "published"),
        rounds=2,
        accountant="rdp",
        epsilon=epsilon,
    )
    ledger = Ledger.read(next((result.folder / "ledger").glob("*.sqlite")))
    try:
        spent = ledger.spending()
        assert ledger.limit is None
    finally:
        ledger.close()
    assert accountant("rdp").epsilon(spent, 1e-5) == pytest.approx(
        max(result.privacy.per_client.values()), rel=0.05
    )
    assert result.privacy.proven > 100 or result.privacy.proven == math.inf


@pytest.mark.parametrize("name", ["ali-dpfl", "als-dpfl"])
def test_steps_adapt_and_end_with_the_privacy_budget(
    train: Train, federation: Federation, name: str
) -> None:
    made = from_name(name, sampling_rate=0.2, noise_multiplier=1.5, rate=0.2)
    result = train(federation, made, epsilon=6.0, rounds=6, accountant="rdp")
    taus = [row.steps for row in result.history]
    assert taus[0] == 1
    assert max(taus) > 1
    assert sum(taus) == result.iterations
    assert result.privacy.proven <= 6.0
    if result.stopped_by == "epsilon":
        assert accountant("rdp").epsilon({made.event(0): result.iterations + 1}, 1e-5) > 6.0


def test_where_rounds_are_enough_ali_makes_one_step_in_each(
    train: Train, federation: Federation
) -> None:
    made = ali_dpfl(sampling_rate=0.2, noise_multiplier=1.5)
    result = train(federation, made, epsilon=4.0, rounds=100, accountant="rdp")
    assert {row.steps for row in result.history} == {1}
    assert result.stopped_by == "epsilon"


def test_a_slope_that_is_paid_for_is_debited_with_the_steps(
    train: Train, federation: Federation
) -> None:
    made = ali_dpfl(mu="paid", sampling_rate=0.2, noise_multiplier=1.5, rate=0.2)
    result = train(federation, made, epsilon=6.0, rounds=5, accountant="rdp")
    assert max(row.steps for row in result.history) > 1
    assert list(result.privacy.releases.values()) == [result.iterations + result.rounds]
    assert result.privacy.proven <= 6.0
    twice = train(federation, made, epsilon=6.0, rounds=5, accountant="rdp", workers=2, out="two")
    assert twice.model_sha256 == result.model_sha256


def test_estimates_from_public_clients_cost_nothing(train: Train, crowd: Federation) -> None:
    made = ali_dpfl(mu="public", gamma="public", sampling_rate=0.5, noise_multiplier=2.0, rate=0.2)
    result = train(crowd, made, epsilon=6.0, rounds=3, accountant="rdp")
    assert list(result.privacy.releases.values()) == [result.iterations]
    assert len(list((result.folder / "ledger").glob("*.sqlite"))) == len(crowd.sizes), (
        "public clients keep no ledger"
    )
    als = als_dpfl(estimates="public", sampling_rate=0.5, noise_multiplier=2.0, rate=0.2)
    assert train(crowd, als, rounds=2, accountant="rdp", out="als").privacy.proven < math.inf


def test_public_estimates_need_public_clients(train: Train, federation: Federation) -> None:
    with pytest.raises(DpflError, match=r"data\.public_clients"):
        train(federation, ali_dpfl(mu="public"), rounds=2)


# The leaks, on neighbouring data


def neighbours() -> tuple[ClientContext, ClientContext]:
    """Client 0 with ten samples, and with one of them replaced by another."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(11, 1, 28, 28, generator=generator), torch.arange(11) % 10
    sites = [
        ClientContext("run", MODEL, MultiClass(10), ClientDatasets(x, y, (rows,), (10,)), Keyed(0))
        for rows in (torch.arange(10), torch.tensor([*range(9), 10]))
    ]
    return sites[0], sites[1]


def said(site: ClientContext, task: ClientTask) -> dict[str, np.ndarray]:
    node = ClientRunner(site)
    try:
        reply = node.work(task, node.model.read())
    finally:
        node.close()
    assert reply.raw is not None
    return dict(reply.raw)


@pytest.mark.parametrize(
    "made", [ali_dpfl("published", sampling_rate=1.0), als_dpfl("published", sampling_rate=1.0)]
)
def test_raw_values_of_neighbours_differ_and_so_does_their_tau(
    made: dpfl.algorithms.Algorithm,
) -> None:
    task = ClientTask(
        0, 0, 2, made.local, Release(clip=NoClip()), made.samples, raw=True, raw_values=RAW_VALUES
    )
    one, other = (said(site, task) for site in neighbours())
    again = said(neighbours()[0], task)
    assert all(np.array_equal(one[name], again[name]) for name in one), (
        "no noise: the same data say the same"
    )
    assert one["gradients"] != other["gradients"]
    assert not np.array_equal(one["gradient"], other["gradient"])


def test_one_sample_moves_a_slope_by_twice_its_clip_at_most_and_its_noise_is_for_that() -> None:
    """A gradient in a slope may be ten times as long as in a step."""
    made = ali_dpfl(mu="paid", sampling_rate=1.0, noise_multiplier=1.0, clip=0.1, rate=5.0)
    bare = replace(made.samples, noise=None)
    slopes = [
        float(said(site, ClientTask(0, 0, 2, made.local, Release(), bare, slope=True))["slope"])
        for site in neighbours()
    ]
    assert 0 < abs(slopes[0] - slopes[1]) <= 2 * 10 * 0.1
    node = ClientRunner(neighbours()[0])
    vector, still = (
        node.model.read(),
        replace(made.local, optimiser=replace(made.local.optimiser, rate=1e-12)),
    )
    asked = ClientTask(0, 0, 1, still, Release(), made.samples, slope=True)
    with one_thread():
        draws = [
            float(node.work(replace(asked, round=round), vector).raw["slope"])
            for round in range(200)
        ]
    node.close()
    assert np.std(draws) == pytest.approx(2 * 10 * 0.1, rel=0.15), (
        "a model that stays where it is has no slope but its noise"
    )


def test_an_exact_histogram_tells_neighbours_apart_and_a_noisy_one_does_not() -> None:
    published, sound = (hw_dpfl(variant).weights.query for variant in ("published", "sound"))
    ask = ClientTask(0, 0, 0, hw_dpfl().local, Release(), query=published)
    one, other = (said(site, ask)["answer"] for site in neighbours())
    assert not np.array_equal(one, other)
    answers = {tuple(sound.answer(np.ones(10), np.random.default_rng(seed))) for seed in range(5)}
    assert len(answers) == 5
    assert sound.event.noise_multiplier == 10.0


def test_a_sound_system_cannot_be_made_of_parts_that_leak() -> None:
    with pytest.raises(DpflError, match="releases nothing without noise"):
        ali_dpfl("sound", mu="raw")


# Check values and options


def test_hw_adds_the_noise_of_theorem_1_on_the_sensitivity_of_lemma_2() -> None:
    made = hw_dpfl("published", tau=10, batch_size=50, rate=0.05, samples=600)
    paper = HellingerNoise(1.0, 1e-5, 10, 50, 600, 0.05, 1.0)
    assert made.updates.sensitivity() == pytest.approx(2 * 0.05 * 10)
    assert made.updates.stddev() == pytest.approx(paper.stddev)
    assert made.claim.epsilon(made.stated(100, 0), 1e-5) == pytest.approx(7.06, abs=0.005)


def test_hw_pays_for_its_histogram_before_the_first_round(
    train: Train, federation: Federation
) -> None:
    made = hw_dpfl(batch_size=100, rate=0.5)
    result = train(federation, made, epsilon=3.0, rounds=3)
    counts = result.privacy.releases
    assert sorted(counts.values()) == [1, 3]
    assert "Gaussian noise, multiplier 10" in counts
    assert 2.99 < result.privacy.proven <= 3.0


def test_the_epsilon_shown_during_a_run_counts_the_histogram(
    train: Train, federation: Federation
) -> None:
    result = train(
        federation,
        hw_dpfl(batch_size=100, rate=0.5, noise_multiplier=4.0, histogram_noise=3.0),
        rounds=3,
    )
    shown = [row.epsilon for row in result.history]
    truth = [
        accountant("pld").epsilon({dp.GaussianDpEvent(3.0): 1, dp.GaussianDpEvent(4.0): made}, 1e-5)
        for made in (1, 2, 3)
    ]
    assert all(upper >= epsilon - 1e-6 for upper, epsilon in zip(shown, truth, strict=True))


# How far one unit moves an upload: bounds that are reached


def opposites(copies: int) -> tuple[ClientContext, ClientContext]:
    """One image twice, once of either class: at zero weights its gradients are each other's
    negative.
    """
    x = torch.full((2, 1, 28, 28), 5.0)
    rows = torch.zeros(copies, dtype=torch.int64)
    sites = [
        ClientContext(
            "run",
            Zeros(),
            MultiClass(2),
            ClientDatasets(x, torch.tensor([0, 1]), (held,), (copies,)),
            Keyed(0),
        )
        for held in (rows, torch.cat([rows[:-1], torch.tensor([1])]))
    ]
    return sites[0], sites[1]


class Zeros:
    name, options = "zeros", ()

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> torch.nn.Module:
        layer = torch.nn.Linear(784, classes)
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        return torch.nn.Sequential(torch.nn.Flatten(), layer)


def moved(
    made: dpfl.algorithms.Algorithm, sites: tuple[ClientContext, ClientContext], steps: int
) -> float:
    """Between the uploads of two neighbours, before their noise."""
    updates = []
    for site in sites:
        node = ClientRunner(site)
        bare = replace(made.updates, noise=None)
        reply = node.work(
            ClientTask(0, 0, steps, made.local, Release(), made.samples, update=bare),
            node.model.read(),
        )
        updates.append(reply.update)
        node.close()
    return float((updates[0] - updates[1]).norm())


@pytest.mark.parametrize("batch_size", [1, 10])
def test_one_step_of_hw_moves_as_far_as_stated_when_a_sample_is_replaced_and_no_further(
    batch_size: int,
) -> None:
    made = hw_dpfl(batch_size=batch_size, rate=0.5, noise_multiplier=1.0)
    distance = moved(made, opposites(batch_size), steps=1)
    assert 0.99 * made.updates.sensitivity_bound < distance <= made.updates.sensitivity_bound


def test_more_steps_of_hw_stay_within_what_is_stated() -> None:
    made = hw_dpfl(tau=5, batch_size=5, rate=0.5, noise_multiplier=1.0)
    assert 0 < moved(made, opposites(5), steps=5) <= made.updates.sensitivity_bound


def test_two_clients_of_ldp_fl_can_be_as_far_apart_as_stated_and_no_further() -> None:
    made = ldp_fl(clip=0.3, tau=3, rate=1.0, noise_multiplier=1.0)
    distance = moved(made, opposites(1), steps=3)
    assert 0.99 * made.updates.sensitivity_bound < distance <= made.updates.sensitivity_bound


@pytest.mark.parametrize(
    "made", [hw_dpfl(batch_size=5, noise_multiplier=0.7), ldp_fl(clip=0.3, noise_multiplier=2.5)]
)
def test_the_noise_of_an_upload_is_its_multiplier_times_how_far_a_unit_moves_it(
    made: dpfl.algorithms.Algorithm,
) -> None:
    site = opposites(5)[0]
    node = ClientRunner(site)
    vector, task = (
        node.model.read(),
        ClientTask(0, 0, 1, made.local, Release(), made.samples, update=made.updates),
    )
    bare = node.work(replace(task, update=replace(made.updates, noise=None)), vector).update
    draws = torch.stack(
        [node.work(replace(task, round=round), vector).update for round in range(40)]
    )
    node.close()
    deviation = float((draws - bare).std())
    assert deviation == pytest.approx(
        made.updates.noise_multiplier * made.updates.sensitivity_bound, rel=0.02
    )


@pytest.mark.parametrize("build", [dp_sgd_wav, dp_fedavg_wav])
def test_the_published_wavelet_systems_have_far_less_noise_than_they_state(
    build: Callable[..., dpfl.algorithms.Algorithm],
) -> None:
    made = build(
        "published", noise_multiplier=1.0, clipping="flat" if build is dp_sgd_wav else "updates"
    )
    model = dpfl.models.FlatModel(MODEL.build((1, 28, 28), 10, seed=0))
    fitted = made.for_model(model.layout)
    size = 2 ** math.ceil(math.log2(model.layout.size))
    assert fitted.release.noise_multiplier == pytest.approx(
        1 / size if made.placement is NoisePlacement.EVERY_STEP else 1 / math.sqrt(size)
    )
    assert fitted.release.stated_event(20) != fitted.release.event(20)


def test_every_system_with_variants_is_tested_here() -> None:
    assert {name for name in ALGORITHMS if "variant" in options_of(name)} == set(OPTIONS)
