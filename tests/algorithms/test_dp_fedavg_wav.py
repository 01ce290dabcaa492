"""DP-FedAvg-WAV: Algorithm 2 as printed, and what it is worth."""

from __future__ import annotations

import math

import pytest
from torch import nn

from dpfl.algorithms import dp_fedavg_wav
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.models import FlatModel
from dpfl.privacy import Flat
from tests.algorithms.checks import Train, assert_far_less_noise_than_stated


def test_algorithm_2_as_printed_has_noise_z_c_over_q_c_d_and_is_worth_next_to_nothing() -> None:
    z, clip, rate, tau = 1.5, 0.2, 0.1, 5
    algorithm = dp_fedavg_wav(
        "published",
        cohort=20,
        clip=clip,
        noise_multiplier=z,
        rate=rate,
        tau=tau,
        batch_size=10,
        samples=30,
    )
    algorithm = algorithm.for_model(FlatModel(nn.Linear(7, 8)).layout)
    sizes = [30] * 60 + [15] * 40
    divisor = 20 * algorithm.weights.usual(sizes)
    # On W H of the mean: z C / (q_c d), with q_c = 20 / 100 and d all samples.
    assert algorithm.clients.local_stddev / divisor == pytest.approx(z * clip / (0.2 * sum(sizes)))
    assert algorithm.clients.noise_multiplier == pytest.approx(
        z / (math.sqrt(64) * rate * tau * 30)
    )
    assert algorithm.stated_event(100).event.noise_multiplier == z
    assert algorithm.samples.clip == Flat(clip)
    assert algorithm.clients.clip.clip_norm == pytest.approx(rate * tau * clip)
    updates = dp_fedavg_wav(
        "published", clipping="updates", cohort=20, noise_multiplier=z
    ).for_model(FlatModel(nn.Linear(7, 8)).layout)
    assert updates.clients.noise_multiplier == pytest.approx(z / 8)


def test_as_printed_runs_and_its_ledger_holds_the_truth(train: Train, crowd: Federation) -> None:
    algorithm = dp_fedavg_wav(
        "published", cohort=10, noise_multiplier=1.0, tau=2, batch_size=20, samples=44
    )
    result = train(crowd, algorithm, rounds=2, accountant="rdp")
    assert result.privacy.claimed < 50
    assert result.privacy.proven > 1e6


def test_a_public_clip_as_printed_moves_the_clip_of_updates_with_it(
    train: Train, crowd: Federation
) -> None:
    algorithm = dp_fedavg_wav(
        "published",
        cohort=10,
        noise_multiplier=1.0,
        tau=2,
        batch_size=20,
        samples=44,
        public_clip=True,
    )
    result = train(crowd, algorithm, rounds=1, accountant="rdp")
    assert result.history[0].clip != pytest.approx(0.1 * 2 * 1.0)


def test_as_published_it_has_far_less_noise_than_it_states() -> None:
    algorithm = dp_fedavg_wav("published", noise_multiplier=1.0, clipping="updates")
    assert_far_less_noise_than_stated(algorithm, steps=False)


def test_the_noise_of_lemma_2_is_refused_for_the_sound_variant() -> None:
    with pytest.raises(DpflError, match="only in the published variant"):
        dp_fedavg_wav(lemma=True)
