"""Each layer with a rule, against gradients sample by sample and, where it has the layer,
Opacus.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from dpfl.gradients.passes.layer_pass import LayerPass
from tests.gradients.gradient_reference import CLASSES, batch, check, one_by_one


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (
            lambda: nn.Sequential(
                nn.Linear(5, 6, bias=False), nn.Flatten(), nn.Linear(18, CLASSES)
            ),
            (3, 5),
        ),
        (lambda: nn.Sequential(nn.Linear(5, 6), nn.Flatten(), nn.Linear(72, CLASSES)), (3, 4, 5)),
        (lambda: nn.Sequential(nn.LayerNorm(5), nn.Flatten(), nn.Linear(15, CLASSES)), (3, 5)),
        (lambda: nn.Sequential(nn.LayerNorm((3, 5)), nn.Flatten(), nn.Linear(15, CLASSES)), (3, 5)),
        (
            lambda: nn.Sequential(
                nn.LayerNorm(5, bias=False), nn.Flatten(), nn.Linear(15, CLASSES)
            ),
            (3, 5),
        ),
        (lambda: nn.Sequential(nn.RMSNorm(5), nn.Flatten(), nn.Linear(15, CLASSES)), (3, 5)),
        (
            lambda: nn.Sequential(
                nn.RMSNorm((3, 5), eps=0.1), nn.Flatten(), nn.Linear(15, CLASSES)
            ),
            (3, 5),
        ),
        (
            lambda: nn.Sequential(nn.LayerNorm(5, elementwise_affine=False), nn.Linear(5, CLASSES)),
            (5,),
        ),
        (
            lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, CLASSES)),
            (4, 3, 3),
        ),
        (lambda: nn.Sequential(nn.GroupNorm(2, 6), nn.Linear(6, CLASSES)), (6,)),
        (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(12, CLASSES)), (4, 3)),
    ],
)
def test_linear_layers_and_norms(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    assert isinstance(check(make(), *batch(7, *shape)).passes.current, LayerPass)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"sparse": True}])
def test_embedding_with_repeated_words(options: dict[str, object]) -> None:
    module = nn.Sequential(nn.Embedding(6, 3, **options), nn.Flatten(), nn.Linear(15, CLASSES))
    x = torch.randint(0, 6, (7, 5), generator=torch.Generator().manual_seed(0))
    dense = copy.deepcopy(module)
    dense[0].sparse = False
    y = batch(7, 1)[1]
    assert isinstance(check(module, x, y, one_by_one(dense, x, y)).passes.current, LayerPass)
