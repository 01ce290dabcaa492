"""Runs of experiments as the work of a cell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import dpfl
from dpfl.config.experiment import parse
from dpfl_papers import Outcome, PaperTable
from tests.dpfl_papers.conftest import cell_of, small_training
from tests.dpfl_papers.test_hellinger import FEW


def test_an_outcome_says_what_was_proven_and_claimed_and_how_training_went():
    outcome = small_training(tau=2).run(0, None)
    assert 0 < outcome.proven <= 4.0
    assert outcome.claimed > outcome.proven
    assert (outcome.steps, outcome.rounds, outcome.unit) == (4, 2, "sample")
    assert outcome.series["tau"] == [2, 2]
    assert outcome.series["accuracy"][-1] == outcome.value
    assert Outcome.from_json(outcome.to_json()) == outcome


def test_a_training_loss_is_the_mean_over_images_that_clients_train_on(
    paper_tables: dict[str, PaperTable], tmp_path: Path
) -> None:
    table = paper_tables["hw-fig6"].with_settings(
        ["data.name=mnist-sample", "evaluate.every=1", *FEW]
    )
    cell = cell_of(table, "sigma = 0.2", "IID")
    outcome = cell.work.run(3, None)
    result = parse({**cell.work.content, "seed": 3}).run(tmp_path / "run", workers=1)
    train, chosen = dpfl.data.sample().train, np.random.default_rng(3).permutation(8000)[:6000]
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(result.module(train.x[chosen]), train.y[chosen])
    assert outcome.value == pytest.approx(float(loss), rel=1e-4)
