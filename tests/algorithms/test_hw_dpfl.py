"""HW-DPFL: noise by Theorem 1 or by an accountant, and a histogram that is paid for."""

from __future__ import annotations

import math
from types import SimpleNamespace

import dp_accounting as dp
import numpy as np
import pytest
import torch

import dpfl
from dpfl.algorithms import hw_dpfl
from dpfl.client.task import ClientTask
from dpfl.data import Federation
from dpfl.privacy import Release, accountant
from dpfl.privacy.accounting.published_claims import HellingerNoise
from tests.algorithms.checks import (
    Train,
    assert_noise_of_upload,
    distance_moved,
    neighbours,
    opposites,
    raw_values,
)
from tests.conftest import ledger_of


def theorem_1(
    n: int, E: int, b: int, eta: float, G: float = 1.0, epsilon: float = 1.0, delta: float = 1e-5
) -> float:
    """(12), written out."""
    gamma = E * b / n
    return math.sqrt(
        32 * gamma**2 * eta**2 * E**2 * G**2 * math.log(1.25 * gamma / delta) / epsilon**2
    )


def test_the_noise_of_theorem_1_is_by_each_clients_own_samples() -> None:
    algorithm = hw_dpfl("published", tau=20, batch_size=10, rate=0.05)
    for n in (196, 600, 1957):
        own = algorithm.for_client_size(n)
        assert own.updates.stddev() == pytest.approx(theorem_1(n, 20, 10, 0.05))
        gamma = 200 / n
        assert own.claim.formula(50) == pytest.approx(
            math.sqrt(50 * math.log(1e5) / (2 * math.log(1.25e5 * gamma)))
        )
    ratios = [
        algorithm.for_client_size(n).updates.stddev() / algorithm.updates.sensitivity()
        for n in (196, 600, 1957)
    ]
    assert ratios == pytest.approx([9.896, 3.075, 0.889], abs=1e-3)


def test_one_number_of_samples_for_all_can_be_given() -> None:
    algorithm = hw_dpfl("published", tau=20, batch_size=10, samples=600)
    assert algorithm.for_client_size(196) is algorithm
    assert hw_dpfl().for_client_size(196).updates == hw_dpfl().updates


def test_clients_of_a_run_have_and_pay_for_the_noise_of_their_own(train: Train) -> None:
    """Theorem 2 claims most for the client with most samples: its log is smallest there."""
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


def test_an_exact_histogram_tells_neighbours_apart_and_a_noisy_one_does_not() -> None:
    published, sound = (hw_dpfl(variant).weights.query for variant in ("published", "sound"))
    ask = ClientTask(0, 0, 0, hw_dpfl().local, Release(), query=published)
    one, other = (raw_values(context, ask)["answer"] for context in neighbours())
    assert not np.array_equal(one, other)
    subject = SimpleNamespace(counts=np.ones(10))
    answers = {tuple(sound.answer(subject, np.random.default_rng(seed))) for seed in range(5)}
    assert len(answers) == 5
    assert sound.event.noise_multiplier == 10.0


def test_hw_adds_the_noise_of_theorem_1_on_the_sensitivity_of_lemma_2() -> None:
    algorithm = hw_dpfl("published", tau=10, batch_size=50, rate=0.05, samples=600)
    paper = HellingerNoise(1.0, 1e-5, 10, 50, 600, 0.05, 1.0)
    assert algorithm.updates.sensitivity() == pytest.approx(2 * 0.05 * 10)
    assert algorithm.updates.stddev() == pytest.approx(paper.stddev)
    assert algorithm.claim.epsilon(algorithm.stated_spending(100, 0), 1e-5) == pytest.approx(
        7.06, abs=0.005
    )


def test_hw_pays_for_its_histogram_before_the_first_round(
    train: Train, federation: Federation
) -> None:
    algorithm = hw_dpfl(batch_size=100, rate=0.5)
    result = train(federation, algorithm, epsilon=3.0, rounds=3)
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
    running_total = [row.epsilon for row in result.history]
    truth = [
        accountant("pld").epsilon(
            {dp.GaussianDpEvent(3.0): 1, dp.GaussianDpEvent(4.0): rounds}, 1e-5
        )
        for rounds in (1, 2, 3)
    ]
    assert all(upper >= epsilon - 1e-6 for upper, epsilon in zip(running_total, truth, strict=True))


@pytest.mark.parametrize("batch_size", [1, 10])
def test_one_step_of_hw_moves_as_far_as_stated_when_a_sample_is_replaced_and_no_further(
    batch_size: int,
) -> None:
    algorithm = hw_dpfl(batch_size=batch_size, rate=0.5, noise_multiplier=1.0)
    distance = distance_moved(algorithm, opposites(batch_size), steps=1)
    bound = algorithm.updates.sensitivity_bound
    assert 0.99 * bound < distance <= bound


def test_more_steps_of_hw_stay_within_what_is_stated() -> None:
    algorithm = hw_dpfl(tau=5, batch_size=5, rate=0.5, noise_multiplier=1.0)
    distance = distance_moved(algorithm, opposites(5), steps=5)
    assert 0 < distance <= algorithm.updates.sensitivity_bound


def test_the_noise_of_an_upload_is_its_multiplier_times_how_far_a_unit_moves_it() -> None:
    assert_noise_of_upload(hw_dpfl(batch_size=5, noise_multiplier=0.7))
