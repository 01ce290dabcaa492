"""What three papers print, to the letter: each formula against a value worked out here, and what it
is worth in truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import dpfl
from dpfl.algorithms import dp_fedavg, dp_fedavg_wav, dp_sgd_wav, hw_dpfl
from dpfl.audit.leaks import leaks
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.optimisers import SGD
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask, LocalTraining, RoundRequest
from dpfl.data import Federation
from dpfl.engines import local_engine
from dpfl.errors import DpflError
from dpfl.models import FlatModel, from_module
from dpfl.privacy import All, Budget, Flat, Keyed, Release
from dpfl.privacy.mechanisms.haar import Haar, whole_vector
from dpfl.privacy.mechanisms.haar_release import HaarClip, HaarLevels, HaarNoise
from dpfl.server.coordinator import Coordinator, FederationFacts, RunState
from dpfl.tasks import MultiClass
from tests.conftest import ledger_of

Train = Callable[..., dpfl.Result]


def theorem_1(
    n: int, E: int, b: int, eta: float, G: float = 1.0, epsilon: float = 1.0, delta: float = 1e-5
) -> float:
    """(12), written out."""
    gamma = E * b / n
    return math.sqrt(
        32 * gamma**2 * eta**2 * E**2 * G**2 * math.log(1.25 * gamma / delta) / epsilon**2
    )


# HW-DPFL: sigma_{t,k} and the claim are each client's own


def test_the_noise_of_theorem_1_is_by_each_clients_own_samples() -> None:
    made = hw_dpfl("published", tau=20, batch_size=10, rate=0.05)
    for n in (196, 600, 1957):
        own = made.for_client_size(n)
        assert own.updates.stddev() == pytest.approx(theorem_1(n, 20, 10, 0.05))
        gamma = 200 / n
        assert own.claim.formula(50) == pytest.approx(
            math.sqrt(50 * math.log(1e5) / (2 * math.log(1.25e5 * gamma)))
        )
    ratios = [
        made.for_client_size(n).updates.stddev() / made.updates.sensitivity()
        for n in (196, 600, 1957)
    ]
    assert ratios == pytest.approx([9.896, 3.075, 0.889], abs=1e-3)


def test_one_number_of_samples_for_all_can_be_given() -> None:
    made = hw_dpfl("published", tau=20, batch_size=10, samples=600)
    assert made.for_client_size(196) is made
    assert hw_dpfl().for_client_size(196).updates == hw_dpfl().updates


def test_clients_of_a_run_have_and_pay_for_the_noise_of_their_own(train: Train) -> None:
    """Theorem 2 claims most of who has most samples: its log is smallest there."""
    source = dpfl.data.sample()
    rows = torch.arange(500)
    small = dpfl.data.tensors(
        source.train.x[rows],
        source.train.y[rows],
        source.test.x[:50],
        source.test.y[:50],
        name="few",
    )
    uneven = small.split(
        clients=3,
        how=lambda labels, clients, rng: (
            [rows[:40].numpy(), rows[40:160].numpy(), rows[160:].numpy()],
            (),
        ),
    )
    result = train(uneven, hw_dpfl("published", tau=2, batch_size=10, rate=0.05), rounds=2)
    for name, n in zip(uneven.names, (40, 120, 340), strict=True):
        noises = [
            event.noise_multiplier
            for event in ledger_of(result, name)
            if hasattr(event, "noise_multiplier")
        ]
        assert noises == pytest.approx([theorem_1(n, 2, 10, 0.05) / (2 * 0.05 * 2)])
    gamma = 20 / 340
    assert result.privacy.claimed == pytest.approx(
        math.sqrt(2 * math.log(1e5) / (2 * math.log(1.25e5 * gamma)))
    )
    assert result.privacy.proven == math.inf


# DP-FedAvg as published: half the mean update of a run without privacy


def coordinator(
    algorithm: dpfl.algorithms.Algorithm,
    probe: Callable[[RoundRequest], list[ClientReply]],
    public: tuple[int, ...] = (),
) -> Coordinator:
    layout = FlatModel(nn.Linear(3, 2)).layout
    made = algorithm.for_model(layout)
    federated = FederationFacts("run", [10, 10, 30], layout, public)
    state = RunState(
        torch.zeros(layout.size), torch.zeros(layout.size), made.samples, made.clients, [9, 9, 9]
    )
    return Coordinator(
        made, Budget(rounds=2), federated, state, Keyed(0), probe, lambda vector: 0.0
    )


def test_the_published_clip_is_half_the_mean_norm_over_clients_and_rounds() -> None:
    norms, seen = iter((3.0, 1.0, 2.0, 6.0, 4.0, 2.0)), []

    def probe(order: RoundRequest) -> list[ClientReply]:
        seen.append(order)
        return [
            ClientReply(task.client, next(norms) * torch.ones(8) / math.sqrt(8))
            for task in order.tasks
        ]

    run = coordinator(dp_fedavg("published", noise_multiplier=1.0), probe)
    order = run.next_order()
    assert order.tasks[0].clients.clip.clip_norm == pytest.approx(0.5 * 18 / 6)
    assert [one.round for one in seen] == [0, 1]
    assert all(one.tasks[0].clients.clip.clip_norm == math.inf for one in seen)
    # The second round of FedAvg starts where the first ended: the mean of updates of norm 3, 1 and
    # 2.
    assert float(seen[1].vector.norm()) == pytest.approx(2.0)
    assert float(run.state.vector.norm()) == 0


def test_no_epsilon_is_proven_of_a_clip_from_raw_updates(train: Train, crowd: Federation) -> None:
    made = dp_fedavg("published", noise_multiplier=2.0, cohort=10, tau=2, batch_size=20, pilot=1)
    result = train(crowd, made, rounds=2)
    assert result.privacy.proven == math.inf
    assert result.privacy.claimed < 20
    assert result.privacy.unaccounted == (made.leaks[0],)
    assert len({row.clip for row in result.history}) == 1
    assert result.history[0].clip != 1.0


def test_the_audit_finds_that_clip() -> None:
    told = leaks(dp_fedavg("published", noise_multiplier=1.0, pilot=1), rounds=2)
    assert any("clip level" in leak.what for leak in told)


# Wavelets


def test_lemma_2_adds_less_and_counts_the_same() -> None:
    made = Release(All(), HaarClip(1.0, "coefficients"), HaarNoise(1.5, lemma=True)).for_model(
        [32768]
    )
    assert made.noise.share == pytest.approx(0.343, abs=5e-4)
    assert made.noise.share == pytest.approx(math.sqrt(2 / 17))
    assert made.stated_event(1).noise_multiplier == 1.5
    assert made.noise_multiplier == pytest.approx(1.5 * math.sqrt(2 / 17) / 32768)
    size, rng = 16, np.random.default_rng(0)
    small = Release(All(), HaarClip(1.0, "coefficients"), HaarNoise(1.5, lemma=True)).for_model(
        [size]
    )
    draws = torch.stack([small.add_noise(torch.zeros(size), rng) for _ in range(3000)])
    # Of one element: sigma^2 (1/3 + 2 / (3 m^2)), times Lemma 2's 2 / (2 + log2 m).
    expected = 1.5 * math.sqrt((1 / 3 + 2 / (3 * size**2)) * 2 / 6)
    assert float(draws.std()) == pytest.approx(expected, rel=0.02)


def test_a_clip_by_levels_bounds_each_level_by_itself() -> None:
    """m = 8: levels of 1, 4, 2 and 1 coefficients, weights 8, 2, 4, 8, so |W H| <= sqrt(64 + 4 + 16
    + 64) C.
    """
    clip = HaarLevels(0.5).for_model([8])
    rows = torch.randn(20, 8, generator=torch.Generator().manual_seed(0)) * 10
    levels = torch.split(whole_vector(8).transform(clip.clipped(rows).float()), [1, 4, 2, 1], dim=1)
    before = torch.split(whole_vector(8).transform(rows), [1, 4, 2, 1], dim=1)
    for level, was in zip(levels, before, strict=True):
        norms = level.norm(dim=1)
        assert bool((norms <= 0.5).all())
        long = was.norm(dim=1) > 0.5
        assert torch.allclose(norms[long], torch.tensor(0.5), rtol=1e-4)
        assert torch.allclose(level[~long], was[~long], atol=1e-5)
    made = Release(All(), clip, HaarNoise(3.0)).for_model([8])
    assert made.noise_multiplier == pytest.approx(3.0 / math.sqrt(64 + 4 + 16 + 64))


def test_algorithm_2_as_printed_has_noise_z_c_over_q_c_d_and_is_worth_next_to_nothing() -> None:
    z, clip, rate, tau = 1.5, 0.2, 0.1, 5
    made = dp_fedavg_wav(
        "published",
        cohort=20,
        clip=clip,
        noise_multiplier=z,
        rate=rate,
        tau=tau,
        batch_size=10,
        samples=30,
    )
    made = made.for_model(FlatModel(nn.Linear(7, 8)).layout)
    declared = [30] * 60 + [15] * 40
    divisor = 20 * made.weights.usual(declared)
    # On W H of the mean: z C / (q_c d), with q_c = 20 / 100 and d all samples.
    assert made.clients.local_stddev / divisor == pytest.approx(z * clip / (0.2 * sum(declared)))
    assert made.clients.noise_multiplier == pytest.approx(z / (math.sqrt(64) * rate * tau * 30))
    assert made.stated_event(100).event.noise_multiplier == z
    assert made.samples.clip == Flat(clip)
    assert made.clients.clip.clip_norm == pytest.approx(rate * tau * clip)
    updates = dp_fedavg_wav(
        "published", clipping="updates", cohort=20, noise_multiplier=z
    ).for_model(FlatModel(nn.Linear(7, 8)).layout)
    assert updates.clients.noise_multiplier == pytest.approx(z / 8)


def test_as_printed_runs_and_its_ledger_holds_the_truth(train: Train, crowd: Federation) -> None:
    made = dp_fedavg_wav(
        "published", cohort=10, noise_multiplier=1.0, tau=2, batch_size=20, samples=44
    )
    result = train(crowd, made, rounds=2, accountant="rdp")
    assert result.privacy.claimed < 50
    assert result.privacy.proven > 1e6


@pytest.mark.parametrize("make", [dp_sgd_wav, dp_fedavg_wav])
def test_what_is_only_published_is_refused_of_sound_systems(
    make: Callable[..., dpfl.algorithms.Algorithm],
) -> None:
    with pytest.raises(DpflError, match="as published"):
        make(lemma=True)


def test_who_is_not_drawn_does_not_pay(train: Train, federation: Federation) -> None:
    result = train(federation, dp_sgd_wav(cohort=2, noise_multiplier=5.0, tau=2), rounds=3)
    paid = [sum(ledger_of(result, name).values()) for name in federation.names]
    assert 0 < sum(paid) < 4 * 3 * 2
    assert all(count % 2 == 0 for count in paid)
    assert result.privacy.proven < math.inf


def tiny() -> tuple[nn.Linear, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        nn.Linear(3, 2),
        torch.randn(12, 3, generator=generator),
        torch.randint(0, 2, (12,), generator=generator),
    )


def median_of(
    module: nn.Linear, x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor | None
) -> float:
    """Of |W H|, or of |H|, over samples, gradient by gradient."""
    norms = []
    for row, label in zip(x, y, strict=True):
        module.zero_grad()
        nn.functional.cross_entropy(module(row[None]), label[None]).backward()
        gradient = torch.cat(
            [parameter.grad.flatten() for parameter in module.parameters()]
        ).double()
        coefficients = whole_vector(8).transform(gradient)
        norms.append(float((coefficients if weights is None else coefficients * weights).norm()))
    return float(torch.tensor(norms).median())


@pytest.mark.parametrize("variant", ["sound", "published"])
def test_the_public_clip_is_the_median_over_public_samples(variant: str) -> None:
    module, x, y = tiny()
    model, rows = from_module(module), torch.arange(12).split(4)
    data = ClientDatasets(x, y, rows, (4, 4, 4))
    site = ClientContext("run", model, MultiClass(2), data, Keyed(0), public=range(2, 3))
    made = dp_sgd_wav(variant, noise_multiplier=1.0, public_clip=True)
    engine = local_engine(site, 8)
    layout = FlatModel(module).layout
    fitted = made.for_model(layout)
    vector = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    state = RunState(vector, torch.zeros(8), fitted.samples, fitted.clients, [9, 9])
    run = Coordinator(
        fitted,
        Budget(rounds=1),
        FederationFacts("run", [4, 4], layout, range(2, 3)),
        state,
        Keyed(0),
        engine.run,
        lambda v: 0.0,
    )
    order = run.next_order()
    engine.close()
    weights = Haar((8,)).weights("paper") if variant == "sound" else None
    expected = median_of(module, x[rows[2]], y[rows[2]], weights)
    assert order.tasks[0].samples.clip.clip_norm == pytest.approx(expected, rel=1e-4)


def test_norms_are_asked_of_public_clients_alone() -> None:
    module, x, y = tiny()
    site = ClientContext(
        "run",
        from_module(module),
        MultiClass(2),
        ClientDatasets(x, y, torch.arange(12).split(4), (4, 4, 4)),
        Keyed(0),
        public=range(2, 3),
    )
    node = ClientRunner(site)
    task = ClientTask(
        0, 0, 1, LocalTraining(SGD(0.1)), Release(), Release(All(), Flat(1.0)), norms=True
    )
    assert "norms" in node.work(replace(task, client=2), node.model.read()).raw
    with pytest.raises(DpflError, match="public"):
        node.work(task, node.model.read())
    node.close()


def test_a_public_clip_needs_public_clients(train: Train, federation: Federation) -> None:
    with pytest.raises(DpflError, match=r"data\.public_clients"):
        train(federation, dp_sgd_wav(noise_multiplier=1.0, public_clip=True), rounds=1)


def test_a_public_clip_as_printed_moves_the_clip_of_updates_with_it(
    train: Train, crowd: Federation
) -> None:
    made = dp_fedavg_wav(
        "published",
        cohort=10,
        noise_multiplier=1.0,
        tau=2,
        batch_size=20,
        samples=44,
        public_clip=True,
    )
    result = train(crowd, made, rounds=1, accountant="rdp")
    assert result.history[0].clip != pytest.approx(0.1 * 2 * 1.0)
