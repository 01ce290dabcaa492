"""The model of one machine, and the random numbers that it draws in training."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientTask
from dpfl.client.workspace import Workspace
from tests.client.small_client import (
    CLASSES,
    FEATURES,
    PLAIN,
    PRIVATE,
    SAMPLES,
    site,
    start,
)


class Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize("task", [PRIVATE, PLAIN])
def test_torch_s_own_random_state_neither_changes_nor_matters(
    tmp_path: Path, task: ClientTask
) -> None:
    vector, node = start(Random()), ClientRunner(site(tmp_path, Random()))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    update = node.work(task, vector).update.clone()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    assert torch.equal(node.work(task, vector).update, update)
    node.close()


def test_a_node_says_how_units_were_computed(tmp_path: Path) -> None:
    for arithmetic in ("exact", "fast"):
        node = ClientRunner(site(tmp_path / arithmetic, arithmetic=arithmetic))
        assert node.arithmetic == ""
        node.work(PRIVATE, start())
        assert node.arithmetic.startswith(arithmetic)
        node.close()


def test_a_batch_of_most_models_may_be_larger_than_one_of_cancelling_products(
    tmp_path: Path,
) -> None:
    context = site(tmp_path)
    gradients, empty = (
        Workspace(context).gradients(SAMPLES),
        (context.data.x[:0], context.data.y[:0]),
    )
    assert gradients.largest_batch(*empty, persons=False) > 180_000
    assert gradients.largest_batch(*empty, persons=True) < 17_000
