"""Descriptions of models: a name and options that build the same module, with the same weights,
everywhere.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dpfl.bad_values import choose, refuse_unknown_options, require_name, require_whole
from dpfl.errors import DpflError
from dpfl.import_path import ImportKind, is_path
from dpfl.models import architectures, sequences
from dpfl.models.descriptions import beside
from dpfl.models.features.patches import patch_features
from dpfl.models.features.scattering import scattering_features

MOST_HIDDEN = 1_000_000
MOST_LAYERS = 256
MOST_PATCHES = 4096

FeatureMap = Callable[[Tensor], Tensor]
OWN = ImportKind("model", nn.Module, "torch.nn.Module")


class Buildable(Protocol):
    """What can be trained: a name and options, and a module for samples of a shape."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Sequence[tuple[str, object]]: ...

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module: ...


@dataclass(frozen=True)
class Model:
    """A model by its catalogue name, or by the import path of a factory, with its options."""

    name: str
    options: tuple[tuple[str, object], ...] = ()

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """A new module for samples (or features) of this shape, channels first; its weights depend
        on the seed alone.
        """
        options: dict[str, Any] = dict(self.options)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            if self.name in _BUILDERS:
                own = (
                    {} if self.name in _FEATURE_MAPS else options
                )  # else they are those of the features
                return _BUILDERS[self.name](tuple(shape), classes, **own)
            return OWN.make(self.name, options)


@dataclass(frozen=True, eq=False)
class ReadyModel:
    """A user's own module: its weights as they are become the initial weights."""

    module: nn.Module = field(repr=False)
    name: str
    options: tuple[tuple[str, object], ...] = ()

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        return copy.deepcopy(self.module)


def linear() -> Model:
    """One linear layer: logistic regression, or linear where the label is a number; for tables."""
    return Model("linear")


def mlp(hidden: int = 200, activation: str = "relu", embedding: int | None = None) -> Model:
    """One hidden layer; 159,010 parameters on MNIST. With `embedding`, a category of a table is so
    many trained numbers, for columns of many levels; without it, it is one-hot."""
    _size("hidden", hidden)
    embedded = () if embedding is None else (("embedding", _size("embedding", embedding)),)
    return Model(
        "mlp",
        (
            ("hidden", hidden),
            ("activation", require_name("activation", activation, _ACTIVATIONS)),
            *embedded,
        ),
    )


def gru(width: int = 64, vocabulary: int | None = None) -> Model:
    """An embedding and one gated recurrent layer for sequences of tokens; 35,280 parameters for 80
    tokens.

    Scores are for the next token at every place. With the `vocabulary` of the tokens declared, they
    are for one label of the whole sequence, after its last token.
    """
    return Model("gru", (("width", _size("width", width)), *_vocabulary(vocabulary)))


def transformer(
    width: int = 64, layers: int = 2, heads: int = 4, vocabulary: int | None = None
) -> Model:
    """A small causal transformer for sequences of tokens; 77,392 parameters for 80 tokens. What is
    predicted: as by `gru`.
    """
    if _size("width", width) % (2 * _size("heads", heads)):
        raise DpflError(
            f"width must be a multiple of twice the heads, {2 * heads}, but is {width}."
        )
    sizes = (("width", width), ("layers", _size("layers", layers, MOST_LAYERS)), ("heads", heads))
    return Model("transformer", (*sizes, *_vocabulary(vocabulary)))


def cnn(activation: str = "tanh") -> Model:
    """The small network of the DP-SGD literature; 26,010 parameters on MNIST."""
    return Model("cnn", (("activation", require_name("activation", activation, _ACTIVATIONS)),))


def cnn_wide(activation: str = "relu") -> Model:
    """The network of FedAvg; 582,026 parameters on MNIST, 878,538 on CIFAR-10."""
    return Model(
        "cnn-wide", (("activation", require_name("activation", activation, _ACTIVATIONS)),)
    )


def alexnet() -> Model:
    """AlexNet for small images; 3.3 million parameters."""
    return Model("alexnet")


def mobilenet_v2(norm: str = "group") -> Model:
    """MobileNet-V2 for small images; 2.3 million parameters."""
    return Model("mobilenet-v2", (("norm", require_name("norm", norm, architectures.NORMS)),))


def scattering_linear(mirror: bool = False, patches: int | None = None) -> Model:
    """One linear layer on fixed scattering features; 39,700 parameters on MNIST, 155,530 on
    CIFAR-10 (77,770 with `mirror`).

    The features (J = 2, 8 angles; every three channels of a sample normalised by themselves, then
    mixed by a fixed matrix) need no data and have no parameters. They are computed once, before
    training: a function of each sample alone, which changes no guarantee. So the trained and saved
    module is the layer; apply it to `feature_map(scattering_linear(), shape)(images)`. It begins by
    subtracting a mean of the features, 0 unless a system pays for one. With `mirror` an image and
    its mirror image are alike: for things that may face either way, and not for letters or digits.
    With `patches` there are features of another kind beside them, for photographs: how much each of
    16 parts of an image is like so many patches of random images, which need no data either; with
    `mirror` and 512 patches the layer has 118,730 parameters on CIFAR-10.
    """
    if not isinstance(mirror, bool):
        raise DpflError(f"mirror is true or false, not {mirror!r}.")
    compared = () if patches is None else (("patches", _size("patches", patches, MOST_PATCHES)),)
    return Model("scattering-linear", (*((("mirror", mirror),) if mirror else ()), *compared))


def resnet18(norm: str = "group") -> Model:
    """ResNet-18 for small images; 11.2 million parameters."""
    return Model("resnet-18", (("norm", require_name("norm", norm, architectures.NORMS)),))


def from_name(name: str, **options: object) -> Model:
    """The model of that catalogue name, or of an import path "package.module:factory"."""
    if is_path(name):
        OWN.factory(name)
        return Model(name, tuple(options.items()))
    factory = choose("model", name, _FACTORIES)
    refuse_unknown_options(f"The model {name!r}", options, inspect.signature(factory).parameters)
    return factory(**options)


def from_module(module: nn.Module) -> ReadyModel:
    """A ready module as a model; every build is a copy of it, as it is now."""
    if not isinstance(module, nn.Module):
        raise DpflError(f"from_module takes a torch.nn.Module, but got {type(module).__name__}.")
    return ReadyModel(copy.deepcopy(module), type(module).__name__)


def described(model: Buildable | nn.Module | str) -> Buildable:
    """A model by its name, a ready module, or a description as it is."""
    if isinstance(model, str):
        return from_name(model)
    if isinstance(model, nn.Module):
        return from_module(model)
    if isinstance(model, type) or not hasattr(model, "build"):
        given = (
            f"the class {model.__name__}"
            if isinstance(model, type)
            else f"a {type(model).__name__}"
        )
        raise DpflError(
            "A model is a name such as 'cnn', dpfl.models.cnn() or a ready torch.nn.Module, not "
            f"{given}."
        )
    return model


def feature_map(model: object, shape: tuple[int, ...]) -> FeatureMap | None:
    """The fixed function of each sample by itself that a model is trained on the values of, if it
    has one.
    """
    if not isinstance(model, Model) or model.name not in _FEATURE_MAPS:
        return None
    return _FEATURE_MAPS[model.name](shape, **dict(model.options))


_ACTIVATIONS = architectures.ACTIVATIONS
_FACTORIES: dict[str, Callable[..., Model]] = {
    "linear": linear,
    "mlp": mlp,
    "gru": gru,
    "transformer": transformer,
    "cnn": cnn,
    "cnn-wide": cnn_wide,
    "alexnet": alexnet,
    "mobilenet-v2": mobilenet_v2,
    "resnet-18": resnet18,
    "scattering-linear": scattering_linear,
}
NAMES = tuple(_FACTORIES)
"""Of the catalogue."""
_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "linear": architectures.build_linear,
    "mlp": architectures.build_mlp,
    "gru": sequences.build_gru,
    "transformer": sequences.build_transformer,
    "cnn": architectures.build_cnn,
    "cnn-wide": architectures.build_cnn_wide,
    "alexnet": architectures.build_alexnet,
    "mobilenet-v2": architectures.build_mobilenet_v2,
    "resnet-18": architectures.build_resnet18,
    "scattering-linear": architectures.build_centred_linear,
}


def _scattered(
    shape: tuple[int, ...], mirror: bool = False, patches: int | None = None
) -> FeatureMap:
    found = scattering_features(shape, mirror)
    return found if patches is None else beside(found, patch_features(shape, mirror, patches))


_FEATURE_MAPS: dict[str, Callable[..., FeatureMap]] = {"scattering-linear": _scattered}


def _size(name: str, value: int, most: int = MOST_HIDDEN) -> int:
    return require_whole(value, name, least=1, most=most)


def _vocabulary(count: int | None) -> tuple[tuple[str, object], ...]:
    return () if count is None else (("vocabulary", _size("vocabulary", count)),)
