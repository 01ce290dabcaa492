"""Every model of the catalogue as Python that needs no dpfl: the same names, the same scores."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dpfl import models
from dpfl.models.code import as_code
from dpfl.models.columns import TableModel

IMAGES, TOKENS, ROWS = (1, 28, 28), (12,), (5,)
CASES = {
    "linear": (models.linear(), IMAGES),
    "mlp": (models.mlp(hidden=4, activation="gelu"), IMAGES),
    "cnn": (models.cnn(), IMAGES),
    "cnn-elu": (models.cnn(activation="elu"), IMAGES),
    "cnn-wide": (models.cnn_wide(), (3, 32, 32)),
    "alexnet": (models.alexnet(), (3, 32, 32)),
    "mobilenet-v2": (models.mobilenet_v2(), (3, 32, 32)),
    "resnet-18": (models.resnet18(norm="batch"), (3, 32, 32)),
    "gru": (models.gru(width=4), TOKENS),
    "gru at the end": (models.gru(width=4, vocabulary=9), TOKENS),
    "transformer": (models.transformer(width=8, layers=2, heads=2), TOKENS),
    "scattering-linear": (models.scattering_linear(), (6,)),
    "a table": (TableModel(models.mlp(hidden=3), 3, (2, 4)), ROWS),
    "a table with paid scales": (
        TableModel(models.linear(), 3, (2, 4), has_paid_scales=True),
        ROWS,
    ),
    "a table with embeddings": (TableModel(models.mlp(hidden=3, embedding=2), 3, (2, 4)), ROWS),
}


def samples(shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if shape == TOKENS:
        return torch.randint(0, 9, (2, *shape), generator=generator)
    x = torch.randn(2, *shape, generator=generator)
    return (
        torch.cat([x[:, :3], torch.tensor([[1.0, 3.0], [0.0, 2.0]])], dim=1) if shape == ROWS else x
    )


@pytest.mark.parametrize("name", CASES)
def test_the_code_builds_the_same_model_without_dpfl(name: str) -> None:
    model, shape = CASES[name]
    module = model.build(shape, 9, seed=1).eval()
    code = as_code(module)
    assert code is not None
    assert "dpfl" not in code
    names: dict[str, nn.Module] = {}
    exec(code, names)
    built = names["model"].eval()
    built.load_state_dict(module.state_dict())
    with torch.no_grad():
        assert torch.equal(built(samples(shape)), module(samples(shape)))


def test_a_class_of_somebody_else_is_left_to_them() -> None:
    class Own(nn.Module):
        pass

    assert as_code(Own()) is None
    assert as_code(nn.Sequential(nn.Linear(2, 2), Own())) is None
    assert as_code(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) is not None
