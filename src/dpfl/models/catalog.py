"""Descriptions of models: a name and options that build the same module everywhere."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dpfl.bad_values import choose, refuse_unknown_options, require_name, require_whole, wrong_value
from dpfl.errors import DpflError
from dpfl.import_path import ImportKind, is_path
from dpfl.models import architectures, sequences
from dpfl.models.descriptions import Buildable, ReadyModel
from dpfl.models.features.patches import patch_features
from dpfl.models.features.scattering import scattering_features
from dpfl.models.features.side_by_side import beside

MOST_HIDDEN = 1_000_000
MOST_LAYERS = 256
MOST_PATCHES = 4096

FeatureMap = Callable[[Tensor], Tensor]
OWN = ImportKind("model", nn.Module, "torch.nn.Module")


@dataclass(frozen=True)
class Model:
    """A model of the catalogue, or of a factory with an import path.

    Attributes:
        name: The catalogue name, or the import path "package.module:factory".
        options: The options of the model or the factory.
    """

    name: str
    options: tuple[tuple[str, object], ...] = ()

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Builds a module, whose weights depend on the seed alone.

        Args:
            shape: The shape of a sample, or of its features, channels first.
            classes: The number of scores.
            seed: Seeds the weights.

        Returns:
            The module.

        Raises:
            DpflError: The model does not fit the samples, or the factory failed.
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


def linear() -> Model:
    """Describes one linear layer: logistic regression, or linear regression where the label is a
    number.

    Returns:
        The model.
    """
    return Model("linear")


def mlp(hidden: int = 200, activation: str = "relu", embedding: int | None = None) -> Model:
    """Describes a network with one hidden layer; 159,010 parameters on MNIST.

    Args:
        hidden: The width of the hidden layer.
        activation: "relu", "tanh", "elu" or "gelu".
        embedding: The number of trained numbers for each category of a table, for columns of many
            levels. By default, categories are one-hot.

    Returns:
        The model.

    Raises:
        DpflError: An option is out of its range.
    """
    _size("hidden", hidden)
    embedding_options = () if embedding is None else (("embedding", _size("embedding", embedding)),)
    return Model(
        "mlp",
        (
            ("hidden", hidden),
            ("activation", require_name("activation", activation, _ACTIVATIONS)),
            *embedding_options,
        ),
    )


def gru(width: int = 64, vocabulary: int | None = None) -> Model:
    """Describes an embedding and one gated recurrent layer for sequences; 35,280 parameters for 80
    tokens.

    Args:
        width: The width of the embedding and of the layer.
        vocabulary: The number of tokens. With it, the scores are for one label of the whole
            sequence, after its last token. Without it, they are for the next token at every place.

    Returns:
        The model.

    Raises:
        DpflError: An option is out of its range.
    """
    return Model("gru", (("width", _size("width", width)), *_vocabulary(vocabulary)))


def transformer(
    width: int = 64, layers: int = 2, heads: int = 4, vocabulary: int | None = None
) -> Model:
    """Describes a small causal transformer for sequences of tokens; 77,392 parameters for 80
    tokens.

    Args:
        width: The width of the embedding, a multiple of twice the heads.
        layers: The number of blocks.
        heads: The number of attention heads.
        vocabulary: As for `gru`.

    Returns:
        The model.

    Raises:
        DpflError: An option is out of its range.
    """
    if _size("width", width) % (2 * _size("heads", heads)):
        raise DpflError(
            f"width must be a multiple of twice the heads, {2 * heads}, but is {width}."
        )
    sizes = (("width", width), ("layers", _size("layers", layers, MOST_LAYERS)), ("heads", heads))
    return Model("transformer", (*sizes, *_vocabulary(vocabulary)))


def cnn(activation: str = "tanh") -> Model:
    """Describes the small network of the DP-SGD literature; 26,010 parameters on MNIST.

    Args:
        activation: "relu", "tanh", "elu" or "gelu".

    Returns:
        The model.
    """
    return Model("cnn", (("activation", require_name("activation", activation, _ACTIVATIONS)),))


def cnn_wide(activation: str = "relu") -> Model:
    """Describes the network of FedAvg; 582,026 parameters on MNIST, 878,538 on CIFAR-10.

    Args:
        activation: "relu", "tanh", "elu" or "gelu".

    Returns:
        The model.
    """
    options = (("activation", require_name("activation", activation, _ACTIVATIONS)),)
    return Model("cnn-wide", options)


def alexnet() -> Model:
    """Describes AlexNet for small images; 3.3 million parameters.

    Returns:
        The model.
    """
    return Model("alexnet")


def mobilenet_v2(norm: str = "group") -> Model:
    """Describes MobileNet-V2 for small images; 2.3 million parameters.

    Args:
        norm: "group" or "batch". Batch norm is refused where samples are clipped.

    Returns:
        The model.
    """
    return Model("mobilenet-v2", (("norm", require_name("norm", norm, architectures.NORMS)),))


def scattering_linear(mirror: bool = False, patches: int | None = None) -> Model:
    """Describes one linear layer on fixed scattering features; 39,700 parameters on MNIST, 155,530
    on CIFAR-10.

    The features (J = 2, 8 angles; every three channels normalised within a sample, then mixed by a
    fixed matrix) need no data and have no parameters. They are computed once, before training. As
    each is a function of one sample alone, no guarantee changes. The trained and saved module is
    the layer; apply it to `feature_map(scattering_linear(), shape)(images)`. It begins by
    subtracting a mean of the features, which is 0 unless a system pays for one.

    Args:
        mirror: Whether an image and its mirror image have the same features: for things that may
            face either way, and not for letters or digits. There are half as many (77,770
            parameters on CIFAR-10).
        patches: The number of random patches, which need no data either, that each of 16 parts of
            an image is also compared with. For photographs; with `mirror` and 512 patches there are
            118,730 parameters on CIFAR-10.

    Returns:
        The model.

    Raises:
        DpflError: An option is out of its range.
    """
    if not isinstance(mirror, bool):
        raise wrong_value(mirror, "mirror", "give true or false")
    patch_options = (
        () if patches is None else (("patches", _size("patches", patches, MOST_PATCHES)),)
    )
    return Model("scattering-linear", (*((("mirror", mirror),) if mirror else ()), *patch_options))


def resnet18(norm: str = "group") -> Model:
    """Describes ResNet-18 for small images; 11.2 million parameters.

    Args:
        norm: "group" or "batch". Batch norm is refused where samples are clipped.

    Returns:
        The model.
    """
    return Model("resnet-18", (("norm", require_name("norm", norm, architectures.NORMS)),))


def from_name(name: str, **options: object) -> Model:
    """Finds a model by its name.

    Args:
        name: A catalogue name, or an import path "package.module:factory".
        options: The options of the model or the factory.

    Returns:
        The model.

    Raises:
        DpflError: There is no such model, or it has no such option.
    """
    if is_path(name):
        OWN.factory(name)
        return Model(name, tuple(options.items()))
    factory = choose("model", name, _FACTORIES)
    refuse_unknown_options(f"The model {name!r}", options, inspect.signature(factory).parameters)
    return factory(**options)


def from_module(module: nn.Module) -> ReadyModel:
    """Makes a model of a ready module. Every build is a copy of the module as it is now.

    Args:
        module: The module.

    Returns:
        The model.

    Raises:
        DpflError: It is no module.
    """
    if not isinstance(module, nn.Module):
        raise DpflError(f"from_module takes a torch.nn.Module, but got {type(module).__name__}.")
    return ReadyModel(copy.deepcopy(module), type(module).__name__)


def as_model(model: Buildable | nn.Module | str) -> Buildable:
    """Makes a model of whatever a user may give.

    Args:
        model: A name, a ready module, or a description.

    Returns:
        The description.

    Raises:
        DpflError: It is none of these.
    """
    if isinstance(model, str):
        return from_name(model)
    if isinstance(model, nn.Module):
        return from_module(model)
    if isinstance(model, type) or not hasattr(model, "build"):
        kind = (
            f"the class {model.__name__}"
            if isinstance(model, type)
            else f"a {type(model).__name__}"
        )
        raise DpflError(
            "A model is a name such as 'cnn', dpfl.models.cnn() or a ready torch.nn.Module, not "
            f"{kind}."
        )
    return model


def feature_map(model: object, shape: tuple[int, ...]) -> FeatureMap | None:
    """Finds the fixed function of each sample whose values the model is trained on.

    Args:
        model: The description of a model.
        shape: The shape of a sample.

    Returns:
        The function, or None where the model takes the samples themselves.
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
"""The names of the models of the catalogue."""
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


def _scattering_map(
    shape: tuple[int, ...], mirror: bool = False, patches: int | None = None
) -> FeatureMap:
    scattering = scattering_features(shape, mirror)
    if patches is None:
        return scattering
    return beside(scattering, patch_features(shape, mirror, patches))


_FEATURE_MAPS: dict[str, Callable[..., FeatureMap]] = {"scattering-linear": _scattering_map}


def _size(name: str, value: int, most: int = MOST_HIDDEN) -> int:
    return require_whole(value, name, least=1, most=most)


def _vocabulary(count: int | None) -> tuple[tuple[str, object], ...]:
    return () if count is None else (("vocabulary", _size("vocabulary", count)),)
