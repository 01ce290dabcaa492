"""The federation pays once per release, before the noisy sum of a round exists."""

from pathlib import Path

import pytest
import torch

from dpfl.algorithms import dp_fedavg
from dpfl.errors import DpflError
from dpfl.privacy import Limit, SystemEntropy, accountant
from tests.server.rounds import CLIENTS, coordinator, flat, good


def test_every_round_is_one_debit_of_the_federation_whoever_was_drawn(tmp_path: Path) -> None:
    """Faults: a new accountant for each round; rounds with an empty cohort left out of epsilon."""
    algorithm = dp_fedavg(cohort=2, noise_multiplier=1.0)
    run = coordinator(algorithm, tmp_path)
    for replies in ([], good(0), good(0, 1, 2), []):
        run.next_request()
        run.aggregate(replies)
        run.close_round(1)
    event = algorithm.clients.event(CLIENTS)
    assert run.federation.ledger.spending() == {event: 4}
    assert run.federation.ledger.epsilon(1e-5, "rdp") == accountant("rdp").epsilon({event: 4}, 1e-5)


def test_the_debit_comes_before_the_noisy_sum_and_a_refusal_leaves_the_model_alone(
    tmp_path: Path,
) -> None:
    run = coordinator(
        dp_fedavg(cohort=2, noise_multiplier=0.5), tmp_path, limit=Limit(0.1, 1e-5, "rdp")
    )
    with pytest.raises(DpflError, match="budget"):
        run.aggregate(good(0))
    assert run.state.vector.abs().sum() == 0
    assert run.federation.ledger.spending() == {}


def test_a_round_that_is_made_again_after_a_crash_has_the_same_noise_and_is_debited_once(
    tmp_path: Path,
) -> None:
    algorithm = dp_fedavg(cohort=2, noise_multiplier=1.0)
    first, again = coordinator(algorithm, tmp_path), coordinator(algorithm, tmp_path)
    first.aggregate(good(0, 1))
    again.aggregate(good(0, 1))
    assert torch.equal(first.state.vector, again.state.vector)
    assert sum(again.federation.ledger.spending().values()) == 1


def test_under_system_entropy_a_round_that_is_made_again_is_another_release(tmp_path: Path) -> None:
    """Fault: resume that forgets spent budget. The noise is new, so both noisy sums count."""
    algorithm = dp_fedavg(cohort=2, noise_multiplier=1.0)
    first = coordinator(algorithm, tmp_path, randomness=SystemEntropy())
    again = coordinator(algorithm, tmp_path, randomness=SystemEntropy())
    first.aggregate(good(0, 1))
    again.aggregate(good(0, 1))
    assert not torch.equal(first.state.vector, again.state.vector)
    assert sum(again.federation.ledger.spending().values()) == 2


def test_a_round_made_again_with_other_replies_is_another_release_with_its_own_noise(
    tmp_path: Path,
) -> None:
    """Fault: resume that replays noise seeds. Two sums with one noise give away the client by which
    they differ.
    """
    algorithm = dp_fedavg(cohort=2, noise_multiplier=1.0)
    first, again = coordinator(algorithm, tmp_path), coordinator(algorithm, tmp_path)
    first.aggregate(good(0, 1))
    again.aggregate(good(0))
    trainable = flat().layout.trainable
    difference = (first.state.vector - again.state.vector)[:trainable] * 2
    assert not torch.allclose(difference, torch.full((trainable,), 2.0), atol=1e-5)
    assert sum(again.federation.ledger.spending().values()) == 2
