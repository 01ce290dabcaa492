"""The server's side of a round, driven with replies made by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from dpfl import Budget
from dpfl.algorithms import Algorithm, dp_fedavg, fedavg, fedavg_dp
from dpfl.client.task import ClientReply, RoundRequest
from dpfl.errors import DpflError
from dpfl.models import FlatModel
from dpfl.privacy import (
    Keyed,
    Ledger,
    Limit,
    Poisson,
    Randomness,
    Release,
    SystemEntropy,
    accountant,
)
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.mechanisms.noise import FlooredGaussian, gaussian_vector
from dpfl.server.aggregate import release_name
from dpfl.server.coordinator import Coordinator, FederationFacts, RunState
from dpfl.server.schedules import DecaySchedule
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.weights import SizeWeights, UniformWeights

CLIENTS = 4


def flat() -> FlatModel:
    torch.manual_seed(0)
    return FlatModel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))


SIZE = flat().layout.size


def nobody(order: RoundRequest) -> list[ClientReply]:
    raise AssertionError("nobody asked for a public clip")


def coordinator(
    algorithm: Algorithm,
    folder: Path | None = None,
    budget: Budget = Budget(rounds=100),
    randomness: Randomness = Keyed(0),
    limit: Limit | None = None,
    **options: Any,
) -> Coordinator:
    ledger = (
        Ledger.open(folder / "federation.sqlite", "federation", "client", ADD_REMOVE, limit)
        if folder
        else None
    )
    federated = FederationFacts("run", [10, 20, 30, 40], flat().layout, ledger=ledger, limit=limit)
    vector = torch.zeros(SIZE)
    remaining = [MAX_RELEASES] * (CLIENTS if algorithm.unit == "sample" else 1)
    state = RunState(vector, torch.zeros(SIZE), algorithm.samples, algorithm.clients, remaining)
    return Coordinator(
        algorithm,
        budget,
        federated,
        replace(state, **options),
        randomness,
        nobody,
        lambda vector: 0.0,
    )


def good(*clients: int) -> list[ClientReply]:
    return [ClientReply(client, torch.full((SIZE,), float(client + 1))) for client in clients]


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
    assert [note for note in with_it.lost if "client 2" in note and problem in note]
    assert "round 1" in with_it.lost[0]
    assert without.lost == []


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
    run.next_order()
    run.aggregate([*good(0), ClientReply(1, refused="no room"), *good(2, 3)])
    run.close_round(1)
    assert run.lost == ["round 1, client 1: no room"]
    order = run.next_order()
    assert [task.client for task in order.tasks] == [0, 2, 3]


def test_a_failure_costs_one_reply_and_the_client_is_asked_again() -> None:
    run = coordinator(fedavg_dp(noise_multiplier=1.0))
    run.next_order()
    run.aggregate([*good(0, 1, 2), ClientReply(3, failed="its worker process died")])
    run.close_round(1)
    assert "client 3: its worker process died" in run.lost[0]
    assert len(run.next_order().tasks) == CLIENTS


def test_a_round_in_which_everyone_failed_ends_the_run_with_the_reason() -> None:
    run = coordinator(fedavg())
    with pytest.raises(DpflError, match="disk is full"):
        run.aggregate([ClientReply(client, failed="disk is full") for client in range(CLIENTS)])


def test_a_client_that_diverged_ends_the_run_and_is_named() -> None:
    run = coordinator(fedavg_dp(noise_multiplier=1.0))
    before = run.state.vector.clone()
    with pytest.raises(DpflError, match=r"client 2 in round 1.*checkpoint is kept"):
        run.aggregate([*good(0, 1), ClientReply(2, failed="A loss is not finite.", diverged=True)])
    assert torch.equal(run.state.vector, before)


def test_every_round_is_one_debit_of_the_federation_whoever_was_drawn(tmp_path: Path) -> None:
    """Faults: a new accountant for each round; rounds with an empty cohort left out of epsilon."""
    algorithm = dp_fedavg(cohort=2, noise_multiplier=1.0)
    run = coordinator(algorithm, tmp_path)
    for replies in ([], good(0), good(0, 1, 2), []):
        run.next_order()
        run.aggregate(replies)
        run.close_round(1)
    event = algorithm.clients.event(CLIENTS)
    assert run.federated.ledger.spending() == {event: 4}
    assert run.federated.ledger.epsilon(1e-5, "rdp") == accountant("rdp").epsilon({event: 4}, 1e-5)


def test_the_debit_comes_before_the_noisy_sum_and_a_refusal_leaves_the_model_alone(
    tmp_path: Path,
) -> None:
    run = coordinator(
        dp_fedavg(cohort=2, noise_multiplier=0.5), tmp_path, limit=Limit(0.1, 1e-5, "rdp")
    )
    with pytest.raises(DpflError, match="budget"):
        run.aggregate(good(0))
    assert run.state.vector.abs().sum() == 0
    assert run.federated.ledger.spending() == {}


def test_a_round_that_is_made_again_after_a_crash_has_the_same_noise_and_is_debited_once(
    tmp_path: Path,
) -> None:
    algorithm = dp_fedavg(cohort=2, noise_multiplier=1.0)
    first, again = coordinator(algorithm, tmp_path), coordinator(algorithm, tmp_path)
    first.aggregate(good(0, 1))
    again.aggregate(good(0, 1))
    assert torch.equal(first.state.vector, again.state.vector)
    assert sum(again.federated.ledger.spending().values()) == 1


def test_under_system_entropy_a_round_that_is_made_again_is_another_release(tmp_path: Path) -> None:
    """Fault: resume that forgets spent budget. The noise is new, so both noisy sums count."""
    algorithm = dp_fedavg(cohort=2, noise_multiplier=1.0)
    first = coordinator(algorithm, tmp_path, randomness=SystemEntropy())
    again = coordinator(algorithm, tmp_path, randomness=SystemEntropy())
    first.aggregate(good(0, 1))
    again.aggregate(good(0, 1))
    assert not torch.equal(first.state.vector, again.state.vector)
    assert sum(again.federated.ledger.spending().values()) == 2


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
    assert sum(again.federated.ledger.spending().values()) == 2


def test_one_sum_with_more_noise_has_noise_of_its_own(tmp_path: Path) -> None:
    """Fault: one seed gave S + N in a run and S + 3 N in another, noise keyed by S alone: 2 S = 3
    (S + N) - (S + 3 N).
    """
    found = []
    for multiplier in (1.0, 3.0):
        run = coordinator(
            dp_fedavg(cohort=2, noise_multiplier=multiplier), tmp_path / str(multiplier)
        )
        run.aggregate(good(0, 1))
        found.append(2 * run.state.vector[: flat().layout.trainable])
    assert ((3 * found[0] - found[1]) / 2 - 3.0).abs().max() > 1.0


def test_fault_the_clip_level_moves_between_clipping_and_noising(tmp_path: Path) -> None:
    """The noise is for the level that the clients used; only the next round's order has the new
    one.
    """
    algorithm = dp_fedavg(
        cohort=2, noise_multiplier=1.0, clipping="quantile", clip=0.5, count_noise=1.0
    )
    run = coordinator(algorithm, tmp_path)
    order = run.next_order()
    assert {task.clients.clip.clip_norm for task in order.tasks} <= {0.5}
    key = Keyed(
        0, scope=release_name(algorithm.clients, run.state.vector, torch.zeros(SIZE).double(), 0)
    )
    run.aggregate(
        [ClientReply(client, torch.zeros(SIZE), inside=False) for client in range(CLIENTS)]
    )
    run.close_round(order.steps)
    drawn = gaussian_vector(SIZE, 1.0, key.generator("server noise", 0))
    multiplier = (1.0**-2 - (2 * 1.0) ** -2) ** -0.5
    trainable = slice(0, flat().layout.trainable)
    assert torch.allclose(
        run.state.vector[trainable], (multiplier * 0.5 * drawn / 2)[trainable], atol=1e-6
    )
    count = -0.5 * CLIENTS + 1.0 * key.generator("count noise", 0).standard_normal()
    fraction = min(max(count / 2 + 0.5, 0.0), 1.0)
    level = 0.5 * math.exp(-0.2 * (fraction - 0.5))
    assert level != 0.5
    assert run.state.clients.clip.clip_norm == pytest.approx(level)
    following = run.next_order()
    for _ in range(50):
        if following.tasks:
            break
        run.state.round += 1
        following = run.next_order()
    assert {task.clients.clip.clip_norm for task in following.tasks} == {
        run.state.clients.clip.clip_norm
    }


def test_a_vector_of_models_keeps_its_running_variances_positive(tmp_path: Path) -> None:
    run = coordinator(dp_fedavg(noise_multiplier=1.0, clip=10.0), tmp_path)
    run.aggregate([ClientReply(client, torch.full((SIZE,), -5.0)) for client in range(CLIENTS)])
    layout = flat().layout
    spans = {name: layout.span(entry) for entry, name in enumerate(layout.names)}
    assert float(run.state.vector[spans["1.running_var"]].min()) >= 0.99e-5
    assert float(run.state.vector[spans["1.running_mean"]].min()) < 0


def drawn(run: Coordinator, rounds: int) -> list[tuple[int, ...]]:
    seen = []
    for _ in range(rounds):
        order = run.next_order()
        assert order is not None
        seen.append(tuple(task.client for task in order.tasks))
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
    order = run.next_order()
    assert order.steps == 2
    assert [task.client for task in order.tasks] == [0, 1, 3]
    assert {task.steps for task in order.tasks} == {2}
    run.aggregate(good(0, 1, 3))
    run.close_round(order.steps)
    assert run.state.remaining == [3, 0, 0, 5]
    assert run.next_order().steps == 3


def test_the_end_of_every_account_ends_the_run_by_epsilon() -> None:
    run = coordinator(fedavg_dp(tau=3, noise_multiplier=1.0), remaining=[0, 0, 0, 0])
    assert run.next_order() is None
    assert run.stopped_by == "epsilon"


def test_bytes_count_the_model_down_and_the_update_up_and_are_never_exceeded() -> None:
    one = 2 * 4 * SIZE * CLIENTS
    run = coordinator(fedavg(), budget=Budget(bytes=2 * one + one // 2))
    orders = []
    while (order := run.next_order()) is not None:
        orders.append(order)
        run.aggregate([])
        run.close_round(order.steps)
    assert len(orders) == 2
    assert run.state.bytes == 2 * one
    assert run.stopped_by == "bytes"


def test_a_public_median_is_the_median_norm_of_the_public_clients_and_is_not_debited(
    tmp_path: Path,
) -> None:
    asked: list[RoundRequest] = []

    def probe(order: RoundRequest) -> list[ClientReply]:
        asked.append(order)
        return [
            ClientReply(task.client, unit(norm))
            for task, norm in zip(order.tasks, (3.0, 1.0, 2.0), strict=True)
        ]

    def unit(norm: float) -> Tensor:
        return norm * torch.ones(SIZE) / math.sqrt(SIZE)

    run = coordinator(dp_fedavg(noise_multiplier=1.0, clipping="public-median"), tmp_path)
    run.federated = run._requests._federated = replace(run.federated, public=(4, 5, 6))
    run._probe = probe
    order = run.next_order()
    assert order.tasks[0].clients.clip.clip_norm == pytest.approx(2.0)
    assert [task.client for task in asked[0].tasks] == [4, 5, 6]
    assert asked[0].tasks[0].clients.clip.clip_norm == math.inf
    assert run.federated.ledger.spending() == {}


SHARES, LOUD = 8, 3.0
WIDE = FlatModel(nn.Linear(400, 40)).layout


def sum_with_shares(folder: Path, replies: list[ClientReply]) -> Tensor:
    """What comes out of a round in which clients add their shares to nothing at all: the noise of
    the sum.
    """
    algorithm = dp_fedavg(cohort=SHARES, noise_multiplier=LOUD, noise="clients")
    ledger = Ledger.open(folder / "federation.sqlite", "federation", "client", ADD_REMOVE)
    federated = FederationFacts("run", [10] * 20, WIDE, ledger=ledger)
    state = RunState(
        torch.zeros(WIDE.size), torch.zeros(WIDE.size), None, algorithm.clients, [MAX_RELEASES]
    )
    run = Coordinator(
        algorithm, Budget(rounds=9), federated, state, Keyed(0), nobody, lambda vector: 0.0
    )
    run.aggregate(replies)
    return run.state.vector * SHARES


def share(client: int) -> Tensor:
    release = dp_fedavg(cohort=SHARES, noise_multiplier=LOUD, noise="clients").clients
    return release.add_noise(
        torch.zeros(WIDE.size), Keyed(1).generator("client noise", 0, client), share=1 / SHARES
    )


SILENT = {
    "nobody is missing": [],
    "not finite": [ClientReply(6, torch.full((WIDE.size,), math.nan))],
    "infinite once": [ClientReply(7, share(7).index_fill(0, torch.tensor([3]), math.inf))],
    "mis-shaped": [
        ClientReply(5, torch.ones(WIDE.size + 1)),
        ClientReply(6, torch.ones(WIDE.size, 1)),
    ],
    "failed": [ClientReply(7, failed="its worker process died")],
    "refused": [
        ClientReply(4, refused="no room"),
        ClientReply(5, refused="no room"),
        ClientReply(6),
        ClientReply(7, failed="gone"),
    ],
    "all but one": [
        ClientReply(client, torch.full((WIDE.size,), math.inf)) for client in range(1, SHARES)
    ],
    "never drawn": None,
}


@pytest.mark.parametrize("silent", SILENT)
def test_fault_a_dropped_reply_whose_share_of_the_noise_is_counted_as_there(
    tmp_path: Path, silent: str
) -> None:
    """The variance of the noisy sum is that of all shares, whoever is missing: neither less, nor
    noise for nothing.
    """
    dropped = SILENT[silent]
    gone = {reply.client for reply in dropped} if dropped is not None else {6, 7}
    there = [ClientReply(client, share(client)) for client in range(SHARES) if client not in gone]
    found = sum_with_shares(tmp_path, [*there, *(dropped or [])])[: WIDE.trainable].double() / LOUD
    low, high = stats.chi2.interval(1 - 1e-6, WIDE.trainable)
    assert low <= float(found.square().sum()) <= high


@pytest.mark.parametrize("wrong", [-1, 1])
def test_the_test_of_shares_would_see_one_too_few_or_too_many(tmp_path: Path, wrong: int) -> None:
    low, high = stats.chi2.interval(1 - 1e-6, WIDE.trainable)
    one_off = WIDE.trainable * (1 + wrong / SHARES)
    assert not low <= one_off <= high


@pytest.mark.parametrize(
    ("lengths", "seconds", "rounds"),
    [
        ([1.0] * 9, 3.5, 3),
        ([1.0, 3.0, 1.0, 1.0], 6.0, 2),
        ([2.5, 1.0], 2.0, 1),
        ([1.0] * 9, 3.0, 2),
    ],
)
def test_seconds_end_a_run_before_a_round_that_would_pass_them(
    monkeypatch: pytest.MonkeyPatch, lengths: list[float], seconds: float, rounds: int
) -> None:
    """Fault: the clock was looked at when a round began, and a run of 1 second took 2 to 3."""
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    run = coordinator(fedavg(), budget=Budget(seconds=seconds))
    for length in lengths:
        order = run.next_order()
        if order is None:
            break
        clock[0] += length
        run.aggregate(good(0, 1))
        run.close_round(order.steps)
    assert (run.state.round, run.stopped_by) == (rounds, "seconds")
    assert run.state.seconds == sum(lengths[:rounds])


def test_a_resumed_run_expects_rounds_as_long_as_they_were_on_average(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    assert (
        coordinator(fedavg(), budget=Budget(seconds=11.0), round=4, seconds=8.0).next_order()
        is not None
    )
    assert (
        coordinator(fedavg(), budget=Budget(seconds=9.0), round=4, seconds=8.0).next_order() is None
    )


class Heavy(SizeWeights):
    def of(self, declared: Sequence[int], answers: Any = None) -> Tensor:
        return torch.tensor([1.0, self.odd, 0.5, 0.25])


@pytest.mark.parametrize("odd", [1.001, 40.0, -0.5, math.nan, math.inf])
@pytest.mark.parametrize(
    "algorithm", [dp_fedavg(noise_multiplier=1.0), fedavg_dp(noise_multiplier=1.0)]
)
def test_fault_weights_that_the_noise_was_not_made_for(
    tmp_path: Path, algorithm: Algorithm, odd: float
) -> None:
    """A weight of 40 moves the sum by 40 clips, and the noise is for one."""
    weights = type("Odd", (Heavy,), {"odd": odd})()
    with pytest.raises(DpflError, match="a weight from 0 to 1"):
        coordinator(replace(algorithm, weights=weights), tmp_path)
    ledger = Ledger.read(tmp_path / "federation.sqlite")
    assert ledger.spending() == {}, "before anything was paid"
    ledger.close()


def test_weights_of_another_number_of_clients_and_a_divisor_of_nothing_are_refused() -> None:
    short = type(
        "Short", (SizeWeights,), {"of": lambda self, declared, answers=None: torch.ones(2)}
    )()
    empty = type("Empty", (UniformWeights,), {"usual": lambda self, declared: 0.0})()
    for weights, words in ((short, "a weight from 0 to 1"), (empty, "usual weight")):
        with pytest.raises(DpflError, match=words):
            coordinator(replace(fedavg(), weights=weights))


@pytest.mark.parametrize("tau", [0, -2, 1.5])
def test_a_policy_that_gives_no_step_is_refused_before_anyone_is_asked(tau: Any) -> None:
    policy = type("Idle", (FixedSteps,), {"next": lambda self, now: tau})(2)
    with pytest.raises(DpflError, match="at least 1 step a round"):
        coordinator(replace(fedavg_dp(noise_multiplier=1.0), steps=policy)).next_order()


@pytest.mark.parametrize("first", [1, 3])
def test_steps_that_are_not_what_they_said_beforehand_are_refused(first: int) -> None:
    """Else T could follow what was released, and the epsilon of T would be stated as proven."""
    policy = type("Sneaky", (FixedSteps,), {"next": lambda self, now: first})(2)
    with pytest.raises(DpflError, match="said beforehand"):
        coordinator(replace(fedavg_dp(noise_multiplier=1.0), steps=policy)).next_order()


class Lying(DecaySchedule):
    """Says one multiplier beforehand, and has another when the round comes."""

    def now(self, first: Release, round: int, memory: Any) -> Release:
        return self.made(first, round)


LIES = {
    "less noise than it said": lambda self, first, round: first.with_noise(0.5),
    "a floor that rises with what was released": lambda self, first, round: replace(
        first, noise=FlooredGaussian(9.0, 8.0)
    ),
    "another draw": lambda self, first, round: replace(
        self.least(first, round), sampling=Poisson(0.9)
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_fault_a_schedule_whose_round_is_not_counted_as_it_said_beforehand(lie: str) -> None:
    schedule = type("Lies", (Lying,), {"made": LIES[lie]})(rounds=100)
    with pytest.raises(DpflError, match="as it said beforehand"):
        coordinator(replace(fedavg_dp(noise_multiplier=1.0), schedule=schedule)).next_order()
    honest = coordinator(
        replace(fedavg_dp(noise_multiplier=1.0), schedule=DecaySchedule(rounds=100))
    )
    assert honest.next_order() is not None
