"""Names, options and import paths of models, and the errors that explain a wrong one."""

import pytest
import torch
from torch import nn

from dpfl import models
from dpfl.errors import DpflError

MNIST = (1, 28, 28)


def test_weights_depend_on_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = (models.cnn().build(MNIST, 10, seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first[0].weight, again[0].weight)
    assert not torch.equal(first[0].weight, other[0].weight)


def test_names_and_factories_agree() -> None:
    assert models.from_name("mlp", hidden=64) == models.mlp(hidden=64)
    assert models.from_name("cnn-wide") == models.cnn_wide()
    assert models.from_name("resnet-18", norm="batch") == models.resnet18("batch")
    assert hash(models.cnn()) == hash(models.from_name("cnn"))


def test_import_path_of_a_class_or_a_function() -> None:
    module = models.from_name("torch.nn:Linear", in_features=3, out_features=2).build((3,), 2, 5)
    again = models.from_name("torch.nn:Linear", in_features=3, out_features=2).build((3,), 2, 5)
    assert isinstance(module, nn.Linear)
    assert torch.equal(module.weight, again.weight)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("cnn_wyde", {}, "'cnn-wide'"),
        ("resnet18", {}, "'resnet-18'"),
        ("mlp", {"hiden": 3}, "'hidden'"),
        ("alexnet", {"norm": "group"}, "has no option 'norm'; remove it: there are none"),
        ("mlp", {"hidden": 0}, "hidden is 0: give a whole number from 1"),
        ("cnn", {"activation": "rely"}, "'relu'"),
        ("resnet-18", {"norm": "layer"}, "choose one of group, batch"),
        ("scattering-linear", {"mirror": "no"}, "true or false"),
        ("scattering-linear", {"patches": 0}, "patches is 0: give a whole number"),
        ("scattering-linear", {"patches": True}, "patches is True: give a whole number"),
        ("no_such_package:net", {}, "No module named"),
        ("torch.nn:Linnear", {}, "no attribute"),
        ("torch:pi", {}, "not callable"),
    ],
)
def test_a_wrong_name_or_option_is_explained(
    name: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(DpflError, match=says):
        models.from_name(name, **options)


def test_a_factory_that_fails_is_explained() -> None:
    with pytest.raises(DpflError, match="missing"):
        models.from_name("torch.nn:Linear").build((3,), 2, 0)
    with pytest.raises(DpflError, match=r"must return a torch\.nn\.Module"):
        models.from_name("builtins:dict").build((3,), 2, 0)
