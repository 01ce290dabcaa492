"""The server's side of a round, driven with replies made by hand."""

import math
from pathlib import Path

import pytest
import torch

from dpfl import Budget
from dpfl.algorithms import Algorithm, dp_fedavg, fedavg, fedavg_dp
from dpfl.client.task import ClientReply
from dpfl.errors import DpflError
from dpfl.privacy import (
    Keyed,
)
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector
from dpfl.server.aggregation.aggregate import release_name
from dpfl.server.coordinator import Coordinator
from tests.server.rounds import CLIENTS, SIZE, coordinator, flat, good

BAD = {
    "not finite": torch.full((SIZE,), 1.0).index_fill(0, torch.tensor([2]), math.nan),
    "is not finite": torch.full((SIZE,), math.inf),
    "wrong shape": torch.ones(SIZE + 1),
    "wrong shape and was dropped": torch.ones(SIZE, 1),
}


@pytest.mark.parametrize("problem", BAD)
@pytest.mark.parametrize("algorithm", [fedavg(), fedavg_dp(noise_multiplier=1.0)])
def test_an_update_that_is_not_finite_or_mis_shaped_is_dropped_and_named(
    algorithm: Algorithm, problem: str
) -> None:
    with_it, without = coordinator(algorithm), coordinator(algorithm)
    with_it.aggregate([*good(0), ClientReply(2, BAD[problem]), *good(3)])
    without.aggregate(good(0, 3))
    assert torch.equal(with_it.state.vector, without.state.vector)
    assert [note for note in with_it.lost_replies if "client 2" in note and problem in note]
    assert "round 1" in with_it.lost_replies[0]
    assert without.lost_replies == []


@pytest.mark.parametrize("problem", BAD)
def test_at_client_level_a_dropped_update_changes_neither_divisor_nor_noise(
    tmp_path: Path, problem: str
) -> None:
    algorithm = dp_fedavg(noise_multiplier=1.0)
    with_it, without = (
        coordinator(algorithm, tmp_path / "a"),
        coordinator(algorithm, tmp_path / "b"),
    )
    with_it.aggregate([*good(0), ClientReply(2, BAD[problem])])
    without.aggregate(good(0))
    assert torch.equal(with_it.state.vector, without.state.vector)
    scope = release_name(
        algorithm.clients,
        coordinator(algorithm, tmp_path / "c").state.vector,
        good(0)[0].update.double(),
        1,
    )
    noise = gaussian_vector(SIZE, 1.0, Keyed(0, scope=scope).generator("server noise", 0))
    trainable = slice(0, flat().layout.trainable)
    assert torch.allclose(without.state.vector[trainable], ((1 + noise) / CLIENTS)[trainable])


def test_a_refusal_costs_one_reply_and_not_the_round_and_that_client_is_not_asked_again() -> None:
    """Fault: a whole round lost because one client failed."""
    run = coordinator(fedavg_dp(noise_multiplier=1.0))
    run.next_request()
    run.aggregate([*good(0), ClientReply(1, refusal="no room"), *good(2, 3)])
    run.close_round(1)
    assert run.lost_replies == ["round 1, client 1: no room"]
    request = run.next_request()
    assert [task.client for task in request.tasks] == [0, 2, 3]


def test_a_failure_costs_one_reply_and_the_client_is_asked_again() -> None:
    run = coordinator(fedavg_dp(noise_multiplier=1.0))
    run.next_request()
    run.aggregate([*good(0, 1, 2), ClientReply(3, failure="its worker process died")])
    run.close_round(1)
    assert "client 3: its worker process died" in run.lost_replies[0]
    assert len(run.next_request().tasks) == CLIENTS


def test_a_round_in_which_everyone_failed_ends_the_run_with_the_reason() -> None:
    run = coordinator(fedavg())
    with pytest.raises(DpflError, match="disk is full"):
        run.aggregate([ClientReply(client, failure="disk is full") for client in range(CLIENTS)])


def test_a_client_that_diverged_ends_the_run_and_is_named() -> None:
    run = coordinator(fedavg_dp(noise_multiplier=1.0))
    before = run.state.vector.clone()
    with pytest.raises(DpflError, match=r"client 2 in round 1.*checkpoint is kept"):
        run.aggregate([*good(0, 1), ClientReply(2, failure="A loss is not finite.", diverged=True)])
    assert torch.equal(run.state.vector, before)


def drawn(run: Coordinator, rounds: int) -> list[tuple[int, ...]]:
    seen = []
    for _ in range(rounds):
        request = run.next_request()
        assert request is not None
        seen.append(tuple(task.client for task in request.tasks))
        run.state.round += 1
    return seen


def test_poisson_cohorts_vary_in_size_and_fixed_cohorts_do_not(tmp_path: Path) -> None:
    poisson = drawn(coordinator(dp_fedavg(cohort=2, noise_multiplier=1.0), tmp_path / "a"), 60)
    fixed = drawn(
        coordinator(
            dp_fedavg(cohort=2, sampling="fixed-size", noise_multiplier=1.0), tmp_path / "b"
        ),
        60,
    )
    assert {len(cohort) for cohort in poisson} == {0, 1, 2, 3, 4}
    assert {len(cohort) for cohort in fixed} == {2}
    assert len(set(fixed)) > 3


def test_a_cohort_depends_on_the_round_and_the_seed_alone(tmp_path: Path) -> None:
    algorithm = dp_fedavg(cohort=2, noise_multiplier=1.0)
    first = drawn(coordinator(algorithm, tmp_path / "a"), 20)
    assert drawn(coordinator(algorithm, tmp_path / "b"), 20) == first
    assert drawn(coordinator(algorithm, tmp_path / "b", round=5), 15) == first[5:]
    assert drawn(coordinator(algorithm, tmp_path / "c", randomness=Keyed(1)), 20) != first


def test_tau_is_capped_at_the_least_that_anyone_has_left() -> None:
    run = coordinator(fedavg_dp(tau=3, noise_multiplier=1.0), remaining=[5, 2, 0, 7])
    request = run.next_request()
    assert request.steps == 2
    assert [task.client for task in request.tasks] == [0, 1, 3]
    assert {task.steps for task in request.tasks} == {2}
    run.aggregate(good(0, 1, 3))
    run.close_round(request.steps)
    assert run.state.remaining == [3, 0, 0, 5]
    assert run.next_request().steps == 3


def test_the_end_of_every_account_ends_the_run_by_epsilon() -> None:
    run = coordinator(fedavg_dp(tau=3, noise_multiplier=1.0), remaining=[0, 0, 0, 0])
    assert run.next_request() is None
    assert run.stopped_by == "epsilon"


def test_bytes_count_the_model_down_and_the_update_up_and_are_never_exceeded() -> None:
    one = 2 * 4 * SIZE * CLIENTS
    run = coordinator(fedavg(), budget=Budget(bytes=2 * one + one // 2))
    orders = []
    while (request := run.next_request()) is not None:
        orders.append(request)
        run.aggregate([])
        run.close_round(request.steps)
    assert len(orders) == 2
    assert run.state.bytes == 2 * one
    assert run.stopped_by == "bytes"
