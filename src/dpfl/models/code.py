"""A module as the Python that builds it, with PyTorch and nothing else.

So what was trained outlives the library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from torch import nn

from dpfl.models.architectures import Centre, Residual
from dpfl.models.columns import EmbeddedColumns, OneHotColumns, ScaledColumns
from dpfl.models.sequences import Attention, Block, Recurrent, Transformer, _waves

STEP = "    "
IMPORTS = """import math
from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional"""


def as_code(module: nn.Module) -> str | None:
    """Writes the Python that builds a module.

    Args:
        module: The module.

    Returns:
        Lines that end with `model = ...`; None where a part is of a class that is neither torch's
        nor of the catalogue.
    """
    try:
        expression, classes = _expression(module, 0), _classes(module)
    except _Unknown:
        return None
    if not classes and "OrderedDict(" not in expression:
        return f"from torch import nn\n\nmodel = {expression}"
    return "\n\n\n".join(
        [IMPORTS, *(inspect.getsource(part).rstrip() for part in classes), f"model = {expression}"]
    )


class _Unknown(Exception):
    pass


def _classes(module: nn.Module) -> list[Any]:
    """Lists the catalogue's classes that a module uses, and their dependencies."""
    classes: dict[Any, None] = {}
    for part in module.modules():
        for dependency in (
            *DEPENDENCIES.get(type(part), ()),
            *([type(part)] if type(part) in RECIPES else []),
        ):
            classes[dependency] = None
    return list(classes)


def _expression(module: nn.Module, depth: int) -> str:
    kind = type(module)
    if kind is nn.Sequential:
        return _sequence(module, depth)
    if kind in RECIPES:
        return RECIPES[kind](module, depth)
    if kind.__module__.startswith("torch.nn.modules.") and not list(module.children()):
        return f"nn.{module!r}"
    raise _Unknown


def _sequence(module: nn.Module, depth: int) -> str:
    parts = {name: _expression(part, depth + 1) for name, part in module.named_children()}
    if list(parts) == [str(place) for place in range(len(parts))]:
        return _call("nn.Sequential", parts.values(), depth)
    arguments = [f"{name}={expression}" for name, expression in parts.items()]
    if not all(name.isidentifier() for name in parts):
        raise _Unknown
    return f"nn.Sequential({_call('OrderedDict', arguments, depth)})"


def _call(name: str, arguments: Iterable[str], depth: int) -> str:
    inner, end = STEP * (depth + 1), STEP * depth
    return f"{name}(\n" + "".join(f"{inner}{argument},\n" for argument in arguments) + f"{end})"


def _children(module: nn.Module, depth: int) -> str:
    return _call(
        type(module).__name__, [_expression(part, depth + 1) for part in module.children()], depth
    )


def _recurrent(module: Any, _: int) -> str:
    sizes = (
        module.embedding.num_embeddings,
        module.embedding.embedding_dim,
        module.head.out_features,
    )
    return f"{type(module).__name__}({', '.join(map(str, sizes))}, at_end={module.at_end})"


def _transformer(module: Any, _: int) -> str:
    width, layers = module.embedding.embedding_dim, len(module.blocks) - 1
    heads, outputs = module.blocks[0].attention[1].heads, module.head.out_features
    sizes = (module.embedding.num_embeddings, len(module.waves), width, layers, heads, outputs)
    return f"{type(module).__name__}({', '.join(map(str, sizes))}, at_end={module.at_end})"


def _embedded_columns_code(module: Any, _: int) -> str:
    firsts = [*module.firsts.tolist(), module.embedding.num_embeddings]
    levels = tuple(after - before for before, after in pairwise(firsts))
    return f"{type(module).__name__}({module.numbers}, {levels}, {module.embedding.embedding_dim})"


RECIPES: dict[type, Callable[[Any, int], str]] = {
    Residual: _children,
    Centre: lambda module, _: f"{type(module).__name__}({len(module.running_mean)})",
    OneHotColumns: lambda module, _: repr(module),
    ScaledColumns: lambda module, _: repr(module),
    EmbeddedColumns: _embedded_columns_code,
    Recurrent: _recurrent,
    Transformer: _transformer,
}
DEPENDENCIES: dict[type, tuple[Any, ...]] = {Transformer: (Attention, Block, _waves)}
