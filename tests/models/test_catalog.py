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
        ("alexnet", {"norm": "group"}, "has no option 'norm'; it has none"),
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


def test_data_that_does_not_fit_is_explained() -> None:
    with pytest.raises(DpflError, match="channels, height, width"):
        models.cnn().build((784,), 10, 0)
    with pytest.raises(DpflError, match="too small"):
        models.cnn_wide().build((1, 6, 6), 10, 0)
    assert models.mlp().build((20,), 10, 0)(torch.zeros(1, 20)).shape == (1, 10)
