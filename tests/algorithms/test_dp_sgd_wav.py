"""DP-SGD-WAV: noise on Haar coefficients, as stated and as published."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dpfl.algorithms import dp_sgd_wav
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.descent.optimisers import SGD
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientTask, LocalTraining
from dpfl.data import Federation
from dpfl.engines import local_engine
from dpfl.errors import DpflError
from dpfl.models import FlatModel, from_module
from dpfl.privacy import All, Budget, Flat, Keyed, Release
from dpfl.privacy.mechanisms.noises.haar import Haar
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarLevels, HaarNoise
from dpfl.server.coordinator import Coordinator, FederationFacts, RunState
from dpfl.tasks import MultiClass
from tests.algorithms.checks import Train, assert_far_less_noise_than_stated
from tests.conftest import ledger_of


def test_lemma_2_adds_less_and_counts_the_same() -> None:
    release = Release(All(), HaarClip(1.0, "coefficients"), HaarNoise(1.5, lemma=True)).for_model(
        [32768]
    )
    assert release.noise.share == pytest.approx(0.343, abs=5e-4)
    assert release.noise.share == pytest.approx(math.sqrt(2 / 17))
    assert release.stated_event(1).noise_multiplier == 1.5
    assert release.noise_multiplier == pytest.approx(1.5 * math.sqrt(2 / 17) / 32768)
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
    levels = torch.split(Haar((8,)).transform(clip.clip_rows(rows).float()), [1, 4, 2, 1], dim=1)
    before = torch.split(Haar((8,)).transform(rows), [1, 4, 2, 1], dim=1)
    for level, was in zip(levels, before, strict=True):
        norms = level.norm(dim=1)
        assert bool((norms <= 0.5).all())
        long = was.norm(dim=1) > 0.5
        assert torch.allclose(norms[long], torch.tensor(0.5), rtol=1e-4)
        assert torch.allclose(level[~long], was[~long], atol=1e-5)
    release = Release(All(), clip, HaarNoise(3.0)).for_model([8])
    assert release.noise_multiplier == pytest.approx(3.0 / math.sqrt(64 + 4 + 16 + 64))


def test_clients_outside_the_cohort_do_not_pay(train: Train, federation: Federation) -> None:
    result = train(federation, dp_sgd_wav(cohort=2, noise_multiplier=5.0, tau=2), rounds=3)
    debits = [sum(ledger_of(result, name).values()) for name in federation.names]
    assert 0 < sum(debits) < 4 * 3 * 2
    assert all(count % 2 == 0 for count in debits)
    assert result.privacy.proven < math.inf


# The clip norm of public clients


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
        coefficients = Haar((8,)).transform(gradient)
        norms.append(float((coefficients if weights is None else coefficients * weights).norm()))
    return float(torch.tensor(norms).median())


@pytest.mark.parametrize("variant", ["sound", "published"])
def test_the_public_clip_is_the_median_over_public_samples(variant: str) -> None:
    module, x, y = tiny()
    model, rows = from_module(module), torch.arange(12).split(4)
    data = ClientDatasets(x, y, rows, (4, 4, 4))
    context = ClientContext("run", model, MultiClass(2), data, Keyed(0), public=range(2, 3))
    algorithm = dp_sgd_wav(variant, noise_multiplier=1.0, public_clip=True)
    engine = local_engine(context, 8)
    layout = FlatModel(module).layout
    algorithm = algorithm.for_model(layout)
    vector = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    state = RunState(vector, torch.zeros(8), algorithm.samples, algorithm.clients, [9, 9])
    run = Coordinator(
        algorithm,
        Budget(rounds=1),
        FederationFacts("run", [4, 4], layout, range(2, 3)),
        state,
        Keyed(0),
        engine.run,
        lambda v: 0.0,
    )
    request = run.next_request()
    engine.close()
    weights = Haar((8,)).weights("paper") if variant == "sound" else None
    expected = median_of(module, x[rows[2]], y[rows[2]], weights)
    assert request.tasks[0].samples.clip.clip_norm == pytest.approx(expected, rel=1e-4)


def test_norms_are_asked_of_public_clients_alone() -> None:
    module, x, y = tiny()
    context = ClientContext(
        "run",
        from_module(module),
        MultiClass(2),
        ClientDatasets(x, y, torch.arange(12).split(4), (4, 4, 4)),
        Keyed(0),
        public=range(2, 3),
    )
    runner = ClientRunner(context)
    task = ClientTask(
        0, 0, 1, LocalTraining(SGD(0.1)), Release(), Release(All(), Flat(1.0)), norms=True
    )
    assert "norms" in runner.work(replace(task, client=2), runner.model.read()).raw
    with pytest.raises(DpflError, match="public"):
        runner.work(task, runner.model.read())
    runner.close()


def test_a_public_clip_needs_public_clients(train: Train, federation: Federation) -> None:
    with pytest.raises(DpflError, match=r"data\.public_clients"):
        train(federation, dp_sgd_wav(noise_multiplier=1.0, public_clip=True), rounds=1)


def test_as_published_it_has_far_less_noise_than_it_states() -> None:
    algorithm = dp_sgd_wav("published", noise_multiplier=1.0)
    assert_far_less_noise_than_stated(algorithm, steps=True)


def test_the_noise_of_lemma_2_is_refused_for_the_sound_variant() -> None:
    with pytest.raises(DpflError, match="only in the published variant"):
        dp_sgd_wav(lemma=True)
