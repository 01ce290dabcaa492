"""Loss and accuracy of a model on a data set, whatever the size of its batches."""

import pytest
import torch
from torch import nn

from dpfl.models import FlatModel
from dpfl.models.evaluation import compute_scores, evaluate
from dpfl.tasks import Regression


def test_the_loss_is_the_mean_over_samples_in_batches_of_any_size() -> None:
    model = FlatModel(nn.Linear(3, 2))
    x, y = torch.randn(7, 3), torch.tensor([0, 1, 1, 0, 1, 0, 0])
    expected = float(nn.functional.cross_entropy(model.module(x), y).detach())
    right = float((model.module(x).argmax(1) == y).float().mean())
    for batch in (3, 7, 100):
        assert evaluate(model, x, y, batch) == (
            pytest.approx(right),
            pytest.approx(expected, rel=1e-5),
        )


def test_a_task_of_numbers_has_a_loss_and_no_accuracy() -> None:
    model = FlatModel(nn.Linear(3, 1), Regression())
    x, y = torch.randn(4, 3), torch.zeros(4)
    accuracy, loss = evaluate(model, x, y)
    assert accuracy is None
    assert loss == pytest.approx(float(model.module(x).square().mean().detach()) / 2, rel=1e-5)


def test_a_module_is_evaluated_without_dropout_and_is_left_in_training() -> None:
    model = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9)))
    x, y = torch.ones(5, 3), torch.zeros(5, dtype=torch.int64)
    scores, _ = compute_scores(model, x, y)
    assert torch.equal(scores, scores[:1].expand(5, -1))
    assert model.module.training
