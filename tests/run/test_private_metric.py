"""A metric that clients are asked for at the end of a run, where nothing is public to measure
on.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

import dpfl
from dpfl.config.experiment import parse
from dpfl.data import IID
from dpfl.errors import DpflError
from dpfl.privacy.accounting.accountant import accountant
from dpfl.privacy.accounting.events import gaussian
from dpfl.run.records.folder import RunFolder
from dpfl.run.result import Result
from tests.conftest import StopsAfter, ledger_of, small_source
from tests.run.test_tables import content, write


def told(tmp_path: Path, test: Any = None, **metrics: Any) -> dict[str, Any]:
    said = content(write(tmp_path / "stays.csv", 600), test=test)
    said |= {"algorithm": {"name": "fedavg-dp", "tau": 1}, "budget": {"epsilon": 2.0, "rounds": 3}}
    return said | {"metrics": {"private": True, **metrics}}


def run(tmp_path: Path, said: dict[str, Any], out: str = "run", **options: Any) -> Result:
    return parse(said).run(out=tmp_path / out, workers=1, **options)


def test_it_is_counted_within_epsilon_and_says_that_it_is_noisy(tmp_path: Path) -> None:
    result = run(tmp_path, told(tmp_path))
    assert result.headline == "AUC"
    assert {"AUC", "accuracy", "clipped loss"} == set(result.metrics) == set(result.intervals)
    assert "with noise, on " in result.noisy
    assert "kept out of training" in result.noisy
    assert any("noisy" in text for heading, text in result.privacy.lines() if heading == "asked")
    for name in "ab":
        spent = ledger_of(result, name)
        assert spent[gaussian(10.0)] == 1
        assert sum(spent.values()) == 4
    assert result.privacy.proven == pytest.approx(accountant("pld").epsilon(spent, 1e-5))
    assert result.privacy.proven <= 2.0
    assert result.accuracy is None
    assert RunFolder(result.folder).json("result.json")["noisy"] == result.noisy


@pytest.mark.parametrize("unit", ["sample", "person"])
@pytest.mark.parametrize("everywhere", [0.0, 1.0])
def test_nobody_is_told_how_many_samples_are_kept_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str, everywhere: float
) -> None:  # fmt: skip
    """Sizes and refusals are of what is declared: the same where all samples happen to lie on one
    side.
    """
    said = told(tmp_path) | {"privacy": {"unit": unit}}
    usual = run(tmp_path, said)
    monkeypatch.setattr("dpfl.data.held_out._draw", lambda federation, row: everywhere)
    other = run(tmp_path, said, "other")
    assert other.noisy.split(":")[0] == usual.noisy.split(":")[0]
    resolved = [RunFolder(result.folder).experiment()["resolved"] for result in (usual, other)]
    assert resolved[0] == resolved[1]
    assert ledger_of(other, "a") == ledger_of(usual, "a")


def test_persons_answer_with_the_mean_of_their_rows_and_are_counted_as_such(tmp_path: Path) -> None:
    said = told(tmp_path) | {"privacy": {"unit": "person"}}
    result = run(tmp_path, said)
    assert " persons of the clients kept out of training" in result.noisy
    assert result.privacy.unit == "person"
    assert ledger_of(result, "a")[gaussian(10.0)] == 1


def test_it_is_near_what_the_samples_say(tmp_path: Path) -> None:
    """On those of training and with hardly any noise: what a test set of the same samples gives."""
    source = small_source()
    federation = dpfl.data.tensors(source.train.x, source.train.y, classes=10).split(
        clients=4, seed=0
    )
    metric = dpfl.PrivateMetric(noise=0.01, held_out=0.0)
    result = dpfl.train(
        "mlp",
        federation,
        "fedavg",
        dpfl.Budget(rounds=3),
        evaluation=dpfl.Evaluation(metric=metric),
        execution=dpfl.Execution(out=tmp_path / "run"),
    )
    with torch.no_grad():
        right = (result.module(source.train.x).argmax(1) == source.train.y).float().mean().item()
    assert result.metrics["accuracy"] == pytest.approx(right, abs=0.002)
    assert "trained on, which flatters it" in result.noisy
    assert result.headline == "accuracy"


@pytest.mark.parametrize("entropy", ["keyed", "system"])
def test_a_finished_run_that_is_resumed_does_not_ask_again(tmp_path: Path, entropy: str) -> None:
    said = told(tmp_path, noise=3.0) | {"privacy": {"entropy": entropy}}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, said, progress=StopsAfter(2))
    first = run(tmp_path, said, resume=True)
    again = run(tmp_path, said, resume=True)
    assert again.metrics["accuracy"] == first.metrics["accuracy"]
    assert again.intervals == first.intervals
    assert ledger_of(again, "a")[gaussian(3.0)] == 1
    if entropy == "keyed":
        assert run(tmp_path, said, "whole").intervals == first.intervals


def test_room_for_it_is_left_where_epsilon_ends_the_run(tmp_path: Path) -> None:
    said = told(tmp_path, noise=4.0)
    said |= {
        "algorithm": {"name": "fedavg-dp", "tau": 5, "noise_multiplier": 1.0},
        "budget": {"epsilon": 1.5},
    }
    result = run(tmp_path, said)
    assert result.stopped_by == "epsilon"
    assert result.lost_replies == ()
    assert result.metrics
    assert result.privacy.proven <= 1.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": {"share": 0.2}}, "has a public test set"),
        (
            {"private": False, "noise": 3.0},
            r"metrics\.noise has no effect without a private metric",
        ),
        ({"noise": 3.0, "share": 0.1}, r"metrics\.noise or metrics\.share"),
        ({"noise": 0.0}, "noise multiplier of the private metric"),
        ({"noise": 0.05}, "but budget.epsilon is 2: raise their noise"),
        ({"held_out": 1.0}, r"metrics\.held_out is 1\.0"),
        ({"held_out": 0.999}, "too few samples to keep 0.999"),
        ({"most": 0.0}, r"metrics\.most is 0\.0"),
        ({"share": 2.0}, r"metrics\.share is 2\.0"),
    ],
)
def test_what_cannot_be_is_one_sentence_before_anything_is_made(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DpflError, match=message):
        run(tmp_path, told(tmp_path, **changes))
    assert not (tmp_path / "run").exists()


def test_noise_for_clients_has_no_metric_of_samples(tmp_path: Path) -> None:
    said = told(tmp_path) | {"algorithm": {"name": "dp-fedavg", "noise_multiplier": 1.0}}
    with pytest.raises(DpflError, match="A private metric protects one sample"):
        run(tmp_path, said)


def test_a_training_loss_is_paid_for_beside_noise_on_uploads(tmp_path: Path) -> None:
    """HW-DPFL on its training samples: histogram, two uploads and the metric are all in the ledger,
    within epsilon.
    """
    source = small_source()
    alone = dpfl.data.tensors(source.train.x, source.train.y, name="alone", classes=10).split(
        clients=2, how=IID(), seed=0
    )
    system = dpfl.algorithms.hw_dpfl(batch_size=100, rate=0.5)
    asked = dpfl.PrivateMetric(noise=7.0, held_out=0.0)
    result = dpfl.train(
        "mlp",
        alone,
        system,
        dpfl.Budget(epsilon=4.0, rounds=2),
        evaluation=dpfl.Evaluation(metric=asked),
        execution=dpfl.Execution(out=tmp_path / "run"),
    )
    spent = ledger_of(result, alone.names[0])
    assert spent[gaussian(7.0)] == spent[gaussian(10.0)] == 1
    assert sum(spent.values()) == 4
    assert result.privacy.proven <= 4.0
    assert "trained on" in result.noisy
    assert "clipped loss" in result.metrics
