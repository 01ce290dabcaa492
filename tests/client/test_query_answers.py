"""What one unit counts with in an answer."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dpfl.client.dataset import ClientDataset
from dpfl.client.query_answers import outcomes_of
from dpfl.client.workspace import Workspace
from dpfl.data.units import UnitGroups
from dpfl.errors import DpflError
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from tests.client.small_client import (
    CLASSES,
    FEATURES,
    IMAGES,
    PRIVATE,
    network,
    site,
    start,
    work,
)


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0))


def test_a_metric_of_a_model_that_mixes_samples_is_refused(tmp_path: Path) -> None:
    """One sample would move what all the others count with."""
    asked = replace(PRIVATE, steps=0, samples=None, query=MetricQuery(1.0, 2, 0, 4.0, 0.0))
    with pytest.raises(DpflError, match="mixes the samples"):
        work(site(tmp_path, Mixing()), asked, start(Mixing()))


@pytest.mark.parametrize("width", [13, 200])
def test_what_a_sample_counts_with_in_a_metric_is_the_same_in_every_batch(
    tmp_path: Path, width: int
) -> None:
    """With weights of 1e9, where the last bit of a score decides the answer."""
    workspace = Workspace(site(tmp_path, network(width)))
    workspace.model.load(workspace.model.read() * 1e9)
    x, y, outcomes = workspace.context.data.x, workspace.context.data.y, outcomes_of(workspace)
    whole = outcomes(x, y, 4.0)
    for part in (slice(0, 1), slice(3, 6), slice(7, 48)):
        assert torch.equal(outcomes(x[part], y[part], 4.0), whole[part])


@pytest.mark.parametrize("scale", [1.0, 1e9, 1e30])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38, -0.0])
def test_one_unit_moves_an_answer_by_its_bound_at_most(
    tmp_path: Path, scale: float, value: float
) -> None:
    """Metrics, means and scales of columns, of a sample and of a person, with weights that a server
    chose.
    """
    workspace = Workspace(site(tmp_path, network(17)))
    workspace.model.load(workspace.model.read() * scale)
    x, y = 3 * workspace.context.data.x, workspace.context.data.y
    rows, persons = torch.arange(IMAGES), torch.arange(IMAGES) // 3
    outcomes = outcomes_of(workspace)
    x[7] = value
    queries = (
        MetricQuery(1.0, 2, 0, 4.0, 0.0),
        MeanQuery(1.0),
        ColumnQuery(1.0, FEATURES, (0, 1, 2), ((6, 10), (7, 3))),
    )
    for query in queries:
        for by, numbers in ((None, rows), (persons, persons)):
            kept = rows[numbers != numbers[7]]
            sums = [
                query.exact_sum(
                    ClientDataset(
                        x,
                        y,
                        some,
                        30,
                        None if by is None else UnitGroups.of(some, by),
                        CLASSES,
                        outcomes,
                    )
                )
                for some in (rows, kept)
            ]
            assert float((sums[0] - sums[1]).norm()) <= query.sensitivity(FEATURES)
