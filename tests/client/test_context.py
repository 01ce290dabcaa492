"""A task trains on a client's training data, and measures on what the client keeps out of it."""

from dataclasses import replace
from pathlib import Path

import torch

from dpfl.privacy.queries.metric import MetricQuery
from tests.client.small_client import PLAIN, site


def test_only_a_metric_is_about_the_data_that_is_kept_out(tmp_path: Path) -> None:
    context = site(tmp_path)
    held_out = (torch.arange(3), torch.arange(3, 7))
    split = replace(context.data, evaluation_rows=held_out, evaluation_sizes=(3, 4))
    context = replace(context, data=split)
    metric = replace(PLAIN, steps=0, query=MetricQuery(1.0, 2, 0, 4.0, 0.1))
    assert len(context.dataset(PLAIN)) == 30
    assert len(context.dataset(metric)) == 4
    assert context.dataset(metric).declared_size == 4
    assert len(site(tmp_path).dataset(metric)) == 30, "without a split it measures on all"
