"""ALI-DPFL as published: mu of a whole run, from gradients that are made here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfl.client.task import ClientReply, RoundRequest
from dpfl.config.experiment import parse
from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import SilentProgress

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


class Beside(SilentProgress):
    """Makes mu of every round once more: sum_i p_i |F_i'(w_i) - F_i'(w)| / |w_i - w|, w being the
    new aggregate.
    """

    def __init__(self) -> None:
        self.mus: list[tuple[float, float]] = []

    def start(self, job: Any) -> None:
        self._job, engine, self._replies = job, job.engine, list[ClientReply]()
        run = engine.run

        def watched(order: RoundRequest) -> Sequence[ClientReply]:
            replies = run(order)
            if order.steps:
                self._replies = [replace(reply, update=reply.update.clone()) for reply in replies]
                self._sent = order.vector.double().numpy()
            return replies

        engine.run = watched

    def tell(self, row: RoundRow) -> None:
        source, state = self._job.source, self._job.coordinator.state
        new, sizes = state.vector.double().numpy(), np.array(source.sizes)
        slopes = []
        for reply in self._replies:
            held = source.clients[reply.client]
            x, y = source.train.x[held].flatten(1).double().numpy(), source.train.y[held].numpy()
            own = self._sent + reply.update.double().numpy()
            rise = np.linalg.norm(gradient(own, x, y) - gradient(new, x, y))
            slopes.append(rise / np.linalg.norm(own - new))
        self.mus.append((float(state.memory["mu"]), float(sizes / sizes.sum() @ np.array(slopes))))


def test_mu_is_the_slope_from_the_new_aggregate_to_what_clients_came_to(tmp_path: Path) -> None:
    """Fault that nothing noticed: from the model that was sent, for which tau* is another."""
    beside = Beside()
    parse(EXPERIMENT | {"seed": 0}).run(tmp_path / "run", workers=1, progress=beside)
    assert len(beside.mus) == 3
    for found, wanted in beside.mus:
        assert found == pytest.approx(wanted, rel=1e-3)
