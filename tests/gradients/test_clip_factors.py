"""Groups of parameters and clip factors that make no sense are refused."""

import pytest
from torch import nn

from dpfl.errors import DpflError
from dpfl.gradients.clip_factors import NonFinite
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from tests.gradients.gradient_reference import CLASSES, batch


@pytest.mark.parametrize("groups", [[], [[0]], [[0, 1], [1]], [[0, 1, 2]], [[0, 1], []]])
def test_groups_must_cover_every_parameter_once(groups: list[list[int]]) -> None:
    with pytest.raises(DpflError, match="exactly once"):
        ClippedGradients(FlatModel(nn.Linear(2, 2)), groups)


def test_factors_are_checked() -> None:
    computed = ClippedGradients(FlatModel(nn.Linear(5, CLASSES)))
    with pytest.raises(NonFinite, match="factor"):
        computed(*batch(7, 5), lambda norms: norms / 0)
    with pytest.raises(DpflError, match=r"shape \([17], 1\)"):
        computed(*batch(7, 5), lambda norms: norms.squeeze())
