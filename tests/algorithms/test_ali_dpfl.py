"""ALI-DPFL: adaptive local iterations inside epsilon, and what its published form leaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfl.algorithms import ali_dpfl
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask, RoundRequest
from dpfl.config.experiment import parse
from dpfl.data import Federation
from dpfl.engines import one_thread
from dpfl.errors import DpflError
from dpfl.privacy import Release
from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import SilentProgress
from tests.algorithms.checks import (
    Train,
    assert_raw_values_tell_neighbours_apart,
    assert_steps_adapt,
    neighbours,
    raw_values,
)


def test_steps_adapt_and_end_with_the_privacy_budget(train: Train, federation: Federation) -> None:
    algorithm = ali_dpfl(sampling_rate=0.2, noise_multiplier=1.5, rate=0.2)
    assert_steps_adapt(train, federation, algorithm)


def test_estimates_from_public_clients_cost_nothing(train: Train, crowd: Federation) -> None:
    algorithm = ali_dpfl(
        mu="public", gamma="public", sampling_rate=0.5, noise_multiplier=2.0, rate=0.2
    )
    result = train(crowd, algorithm, epsilon=6.0, rounds=3, accountant="rdp")
    assert list(result.privacy.releases.values()) == [result.iterations]
    assert len(list((result.folder / "ledger").glob("*.sqlite"))) == len(crowd.sizes), (
        "public clients keep no ledger"
    )


def test_raw_values_of_neighbours_differ_and_so_does_their_tau() -> None:
    assert_raw_values_tell_neighbours_apart(ali_dpfl("published", sampling_rate=1.0))


def test_where_rounds_are_enough_ali_makes_one_step_in_each(
    train: Train, federation: Federation
) -> None:
    algorithm = ali_dpfl(sampling_rate=0.2, noise_multiplier=1.5)
    result = train(federation, algorithm, epsilon=4.0, rounds=100, accountant="rdp")
    assert {row.steps for row in result.history} == {1}
    assert result.stopped_by == "epsilon"


def test_a_slope_that_is_paid_for_is_debited_with_the_steps(
    train: Train, federation: Federation
) -> None:
    algorithm = ali_dpfl(mu="paid", sampling_rate=0.2, noise_multiplier=1.5, rate=0.2)
    result = train(federation, algorithm, epsilon=6.0, rounds=5, accountant="rdp")
    assert max(row.steps for row in result.history) > 1
    assert list(result.privacy.releases.values()) == [result.iterations + result.rounds]
    assert result.privacy.proven <= 6.0
    twice = train(
        federation, algorithm, epsilon=6.0, rounds=5, accountant="rdp", workers=2, out="two"
    )
    assert twice.model_sha256 == result.model_sha256


def test_public_estimates_need_public_clients(train: Train, federation: Federation) -> None:
    with pytest.raises(DpflError, match=r"data\.public_clients"):
        train(federation, ali_dpfl(mu="public"), rounds=2)


def test_one_sample_moves_a_slope_by_twice_its_clip_at_most_and_its_noise_is_for_that() -> None:
    """A gradient in a slope may be ten times as long as in a step."""
    algorithm = ali_dpfl(mu="paid", sampling_rate=1.0, noise_multiplier=1.0, clip=0.1, rate=5.0)
    bare = replace(algorithm.samples, noise=None)
    task = ClientTask(0, 0, 2, algorithm.local, Release(), bare, slope=True)
    slopes = [float(raw_values(context, task)["slope"]) for context in neighbours()]
    assert 0 < abs(slopes[0] - slopes[1]) <= 2 * 10 * 0.1
    runner = ClientRunner(neighbours()[0])
    vector = runner.model.read()
    still = replace(algorithm.local, optimiser=replace(algorithm.local.optimiser, rate=1e-12))
    noisy = ClientTask(0, 0, 1, still, Release(), algorithm.samples, slope=True)
    with one_thread():
        replies = [runner.work(replace(noisy, round=round), vector) for round in range(200)]
    runner.close()
    draws = [float(reply.raw["slope"]) for reply in replies]
    assert np.std(draws) == pytest.approx(2 * 10 * 0.1, rel=0.15), (
        "a model that stays where it is has no slope but its noise"
    )


def test_a_sound_system_cannot_be_made_of_parts_that_leak() -> None:
    with pytest.raises(DpflError, match="releases nothing without noise"):
        ali_dpfl("sound", mu="raw")


# mu as the paper prints it, from gradients that are computed here


CLIENTS, CLASSES = 3, 10


EXPERIMENT = {
    "data": {"name": "mnist-sample", "partition": "iid", "clients": CLIENTS},
    "model": {"name": "linear"},
    "algorithm": {
        "name": "ali-dpfl",
        "variant": "published",
        "sampling_rate": 1.0,
        "noise_multiplier": 20.0,
        "clip": 1.0,
        "rate": 0.5,
    },
    "budget": {"epsilon": 50.0, "delta": 1e-5, "rounds": 3},
}


def gradient(vector: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the mean cross-entropy of a linear model: (softmax - one-hot)^T x / n, and the same of the
    biases.
    """
    weight, bias = vector[:-CLASSES].reshape(CLASSES, -1), vector[-CLASSES:]
    scores = x @ weight.T + bias
    chances = np.exp(scores - scores.max(1, keepdims=True))
    apart = (chances / chances.sum(1, keepdims=True) - np.eye(CLASSES)[y]) / len(y)
    return np.concatenate([(apart.T @ x).flatten(), apart.sum(0)])


class SlopeRecomputation(SilentProgress):
    """Recomputes mu of every round: sum_i p_i |F_i'(w_i) - F_i'(w)| / |w_i - w|, w being the
    new aggregate.
    """

    def __init__(self) -> None:
        self.mus: list[tuple[float, float]] = []

    def start(self, job: Any) -> None:
        self._job, self._replies = job, list[ClientReply]()
        run = job.ask

        def watched(request: RoundRequest) -> Sequence[ClientReply]:
            replies = run(request)
            if request.steps:
                self._replies = [replace(reply, update=reply.update.clone()) for reply in replies]
                self._sent_vector = request.vector.double().numpy()
            return replies

        object.__setattr__(job, "ask", watched)

    def tell(self, row: RoundRow) -> None:
        source, state = self._job.source, self._job.coordinator.state
        new, sizes = state.vector.double().numpy(), np.array(source.sizes)
        slopes = []
        for reply in self._replies:
            rows = source.clients[reply.client]
            x = source.train.x[rows].flatten(1).double().numpy()
            y = source.train.y[rows].numpy()
            own = self._sent_vector + reply.update.double().numpy()
            rise = np.linalg.norm(gradient(own, x, y) - gradient(new, x, y))
            slopes.append(rise / np.linalg.norm(own - new))
        self.mus.append((float(state.memory["mu"]), float(sizes / sizes.sum() @ np.array(slopes))))


def test_mu_is_the_slope_from_the_new_aggregate_to_what_clients_came_to(tmp_path: Path) -> None:
    """Fault that nothing noticed: from the model that was sent, for which tau* is another."""
    beside = SlopeRecomputation()
    parse(EXPERIMENT | {"seed": 0}).run(tmp_path / "run", workers=1, progress=beside)
    assert len(beside.mus) == 3
    for recorded, recomputed in beside.mus:
        assert recorded == pytest.approx(recomputed, rel=1e-3)
