"""What is measured of a run, and what is said of one that diverges."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

import dpfl
from dpfl.algorithms import Algorithm, adap_dp_fl, fedavg
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder
from dpfl.views.compare_groups import group_runs
from dpfl.views.comparison_view import ComparisonView
from dpfl.views.figures.curves import draw_groups
from dpfl.views.run_summary import summary
from dpfl.views.terminal.progress import LiveProgress
from dpfl.views.terminal.tables import print_outcome, runs_table
from tests.run.small_runs import (
    CROWDED,
    SOUND,
    Train,
)


def with_nan(federation: Federation) -> Federation:
    """The same federation, one image of client 2 spoilt after it was checked."""
    data = dpfl.data.tensors(
        federation.train.x.clone(),
        federation.train.y,
        federation.test.x,
        federation.test.y,
        name="small",
    )
    spoilt = replace(federation, train=data.train)
    spoilt.train.x[spoilt.clients[2][7]] = math.nan
    return spoilt


@pytest.mark.parametrize("system", [SOUND, CROWDED], ids=lambda system: system.name)
def test_a_sample_without_a_finite_gradient_does_not_end_a_private_run(
    train: Train, federation: Federation, crowd: Federation, system: Algorithm
) -> None:
    """Whether a run ends is public, and would say that such a sample is there."""
    whole = federation if system is SOUND else crowd
    result = train(with_nan(whole), system, rounds=4, accountant="rdp", seed=3)
    assert result.rounds == 4
    assert not result.lost_replies
    assert all(torch.isfinite(parameter).all() for parameter in result.module.parameters())


def test_training_that_diverges_stops_and_keeps_the_last_checkpoint(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    """The test set is public, and may say so."""
    wild = replace(SOUND, local=LocalTraining(SGD(1e25)))
    with pytest.raises(
        DpflError, match=r"diverged on the test set after round 1.*checkpoint is kept"
    ):
        train(federation, wild, rounds=5, accountant="rdp", evaluate_every=1)
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_run_without_a_test_set_says_that_nothing_was_measured(
    train: Train, federation: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    untested = replace(federation, test=None)
    result = train(untested, SOUND, rounds=2, progress=LiveProgress(Console(width=120)))
    assert result.accuracy is None
    assert result.loss is None
    assert "accuracy is not measured" in " ".join(result.notes)
    print_outcome(result, Console(width=120))
    shown = capsys.readouterr().out
    assert "accuracy not measured" in shown
    assert "round 2/2  tau 3" in shown
    folder = RunFolder(tmp_path / "run")
    Console().print(runs_table(ComparisonView.of_runs([summary(folder)])))
    draw_groups(group_runs([summary(folder)])).save(tmp_path / "runs.png")
    assert train(untested, SOUND, rounds=2, out="again").model_sha256 == result.model_sha256
    with pytest.raises(DpflError, match="follows the loss on a public test set"):
        train(untested, adap_dp_fl(noise_multiplier=1.0), rounds=2, out="follows")


def test_nan_at_one_client_of_an_unprotected_run_stops_it_and_names_the_client(
    train: Train, federation: Federation
) -> None:
    with pytest.raises(DpflError, match="client 2 in round 1"):
        train(with_nan(federation), fedavg(tau=8), rounds=2)
