"""Modules of the catalogue: their sizes, and the samples that they fit."""

import pytest
import torch
from torch import nn

from dpfl import models
from dpfl.errors import DpflError

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


EVERY = [
    models.mlp(),
    models.cnn(),
    models.cnn_wide(),
    models.alexnet(),
    models.mobilenet_v2(),
    models.mobilenet_v2("batch"),
    models.resnet18(),
    models.resnet18("batch"),
    models.scattering_linear(),
]


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("shape", [MNIST, CIFAR])
@pytest.mark.parametrize("model", EVERY, ids=str)
def test_every_model_runs_on_both_shapes(model: models.Model, shape: tuple[int, ...]) -> None:
    module = model.build(shape, 7, 0)
    assert module(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(
    ("model", "shape", "parameters"),
    [
        (models.mlp(), MNIST, 159_010),
        (models.cnn(), MNIST, 26_010),
        (models.cnn_wide(), MNIST, 582_026),
        (models.cnn_wide(), CIFAR, 878_538),
    ],
)
def test_parameters_as_published(
    model: models.Model, shape: tuple[int, ...], parameters: int
) -> None:
    assert count(model.build(shape, 10, 0)) == parameters


def test_large_models_have_about_the_size_they_should() -> None:
    for model, millions in (
        (models.alexnet(), 3.3),
        (models.mobilenet_v2(), 2.3),
        (models.resnet18(), 11.2),
    ):
        assert count(model.build(CIFAR, 10, 0)) / 1e6 == pytest.approx(millions, abs=0.05)


def test_data_that_does_not_fit_is_explained() -> None:
    with pytest.raises(DpflError, match="channels, height, width"):
        models.cnn().build((784,), 10, 0)
    with pytest.raises(DpflError, match="too small"):
        models.cnn_wide().build((1, 6, 6), 10, 0)
    assert models.mlp().build((20,), 10, 0)(torch.zeros(1, 20)).shape == (1, 10)
