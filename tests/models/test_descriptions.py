"""Descriptions of ready modules."""

import pytest
import torch
from torch import nn

from dpfl import models
from dpfl.errors import DpflError


def test_from_module_builds_copies() -> None:
    ready = nn.Linear(3, 2)
    model = models.from_module(ready)
    built = model.build((3,), 2, 0)
    assert model.name == "Linear"
    assert built is not ready
    assert torch.equal(built.weight, ready.weight)
    with torch.no_grad():
        built.weight.zero_()
    assert model.build((3,), 2, 0).weight.any()
    with pytest.raises(DpflError, match="dict"):
        models.from_module({})  # type: ignore[arg-type]
