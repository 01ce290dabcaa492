"""Runs of every task, from arrays to metrics."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dpfl
from dpfl.config.experiment import parse
from dpfl.data import IID
from dpfl.errors import DpflError

COUNT, WIDTH = 240, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(COUNT, WIDTH)).astype(np.float32)
SCORE = X @ np.array([2.0, -1.0, 0.5, 0.0]) + 0.3 * RNG.normal(size=COUNT)

LABELS: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "classes": ((SCORE > 0).astype(int) + (SCORE > 2), {"classes": 3}),
    "binary": ((SCORE > 0).astype(int), {}),
    "labels": (np.stack([SCORE > 0, SCORE > 1], axis=1).astype(int), {"classes": 2}),
    "ordinal": (np.digitize(SCORE, [-1, 0, 1]), {"classes": 4}),
    "number": (SCORE, {}),
    "counts": (np.floor(np.exp(np.minimum(SCORE, 2))), {}),
}
HEADLINES = {
    "classes": "accuracy",
    "binary": "AUC",
    "labels": "AUC",
    "ordinal": "mean distance",
    "number": "RMSE",
}
HEADLINES |= {"counts": "deviance", "tokens": "perplexity"}


def federation(task: str, **options: Any) -> dpfl.data.Federation:
    y, needed = LABELS[task]
    source = dpfl.data.tensors(X[60:], y[60:], X[:60], y[:60], task=task, **needed, **options)
    return source.split(clients=2, how=IID(), seed=0)


def run(
    held: dpfl.data.Federation,
    out: Path,
    model: Any = "linear",
    algorithm: Any = None,
    rounds: int = 3,
) -> dpfl.Result:
    algorithm = algorithm or dpfl.algorithms.fedavg_dp(
        noise_multiplier=0.6, sampling_rate=0.3, tau=4, rate=0.5
    )
    return dpfl.train(
        model, held, algorithm, dpfl.Budget(rounds=rounds), execution=dpfl.Execution(out=out)
    )


@pytest.mark.parametrize("task", LABELS)
def test_a_run_learns_its_task_and_says_how_well(tmp_path: Path, task: str) -> None:
    result = run(federation(task), tmp_path / "run")
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result.headline == written["headline"] == HEADLINES[task]
    assert written["metrics"] == pytest.approx(dict(result.metrics))
    low, high = result.intervals[result.headline]
    assert low <= result.metrics[result.headline] <= high
    assert result.history[-1].headline == pytest.approx(result.metrics[result.headline])
    assert (result.accuracy is None) == (task in ("number", "counts"))
    assert result.history[-1].loss < result.history[0].loss  # type: ignore[operator]
    assert f"Result({result.headline}" in repr(result)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(6, 8), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x))


def test_the_next_token_is_learned_from_sequences(tmp_path: Path) -> None:
    words = torch.arange(80)[:, None] + torch.arange(6)
    x, y = words[:, :-1] % 6, words[:, 1:] % 6
    source = dpfl.data.tensors(x, y, x[:10], y[:10], task="tokens", classes=6)
    result = run(source.split(clients=2, how=IID()), tmp_path / "run", Words(), rounds=8)
    assert result.headline == "perplexity"
    assert result.metrics["perplexity"] < 6.0
    with pytest.raises(DpflError, match="Tokens run from 0 to 5: number them from 0 to 4"):
        dpfl.data.tensors(x, y, task="tokens", classes=5)


def test_a_run_without_a_test_set_measures_nothing(tmp_path: Path) -> None:
    held = dpfl.data.tensors(X, LABELS["binary"][0], task="binary").split(clients=2, how=IID())
    result = run(held, tmp_path / "run", rounds=1)
    assert (result.headline, result.metrics, result.intervals, result.accuracy) == (
        "",
        {},
        {},
        None,
    )
    assert "accuracy not measured" in repr(result)


def test_intervals_are_by_person_where_the_test_set_has_persons(tmp_path: Path) -> None:
    """A test set of copies of one person is known no better for them."""
    y = LABELS["binary"][0]
    source = dpfl.data.tensors(
        X, y, np.repeat(X[:20], 20, axis=0), np.repeat(y[:20], 20), task="binary"
    )
    rows = source.split(clients=2, how=IID())
    persons = dpfl.data.Federation(
        rows.train, rows.test, rows.clients, test_persons=torch.arange(20).repeat_interleave(20)
    )  # fmt: skip
    wide, narrow = (
        run(held, tmp_path / name, rounds=1).intervals["accuracy"]
        for name, held in (("persons", persons), ("rows", rows))
    )
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_no_positives_at_a_client_are_trained_on(tmp_path: Path) -> None:
    parts = [(X[:50], np.zeros(50)), (X[50:], LABELS["binary"][0][50:])]
    held = dpfl.data.Federation.from_tensors(parts, (X[:9], np.zeros(9)), task="binary")
    result = run(held, tmp_path / "run", rounds=1)
    assert math.isnan(result.metrics["AUC"])
    assert json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]["AUC"] is None


def test_counts_of_classes_are_asked_for_where_labels_are_classes_only(tmp_path: Path) -> None:
    hellinger = dpfl.algorithms.from_name("hw-dpfl", noise_multiplier=1.0)
    with pytest.raises(DpflError, match="'number' are no classes"):
        run(federation("number"), tmp_path / "none", algorithm=hellinger)
    assert not (tmp_path / "none").exists()
    assert (
        run(federation("binary"), tmp_path / "run", algorithm=hellinger, rounds=1).headline == "AUC"
    )


def test_a_declared_weight_changes_the_loss_and_nothing_of_the_data() -> None:
    plain, weighted = federation("binary"), federation("binary", class_weights=[1.0, 4.0])
    assert weighted.task == dpfl.tasks.Binary((1.0, 4.0))
    assert weighted.sha256 == plain.sha256
    with pytest.raises(DpflError, match="3 class weights for 2 classes"):
        federation("binary", class_weights=[1.0, 2.0, 3.0])


def test_the_experiment_file_declares_a_task(tmp_path: Path) -> None:
    file = tmp_path / "own.npz"
    np.savez(file, x=X, y=LABELS["counts"][0])
    held = parse(
        {"data": {"name": str(file), "task": "counts", "clients": 3, "test_share": 0.25}}
    ).federation()
    assert held.task == dpfl.tasks.Counts()
    assert held.how == "iid"
    with pytest.raises(DpflError, match="are not classes, so this partition cannot skew"):
        parse(
            {"data": {"name": str(file), "task": "counts", "partition": "dirichlet"}}
        ).federation()
    np.savez(file, x=X, y=LABELS["binary"][0])
    said = {"name": str(file), "task": "binary", "class_weights": [1.0, 2.0], "partition": "iid"}
    assert parse({"data": said}).federation().task == dpfl.tasks.Binary((1.0, 2.0))
    with pytest.raises(DpflError, match="no task 'binry'"):
        parse({"data": said | {"task": "binry"}}).federation()


@pytest.mark.parametrize(
    ("task", "y", "options", "said"),
    [
        ("binary", [0, 1, 2], {}, "run from 0 to 2: number them from 0 to 1"),
        ("number", [0.0, math.nan, 1.0], {}, "finite"),
        ("counts", [0.5, 1, 2], {}, "whole numbers"),
        ("ordinal", [0, 1, 2], {}, "needs its levels declared"),
        ("binary", [0, 1, 1], {"classes": 3}, "does not have 3 classes"),
        (dpfl.tasks.Binary(), [0, 1, 1], {"classes": 2}, "declare them in it"),
    ],
)
def test_labels_that_do_not_fit_are_one_sentence(
    task: Any, y: list[float], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(DpflError, match=said):
        dpfl.data.tensors(X[:3], np.array(y), task=task, **options)
