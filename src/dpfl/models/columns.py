"""Models on tables: rows of numbers and codes, made dense a batch at a time, so that wide tables
stay small.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from dpfl.models.catalog import Model

CODED = "coded_columns"


class WrappedDescription(Protocol):
    """A description of a model."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Sequence[tuple[str, object]]: ...

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module: ...


class ColumnFeatures(Protocol):
    """How a row is laid out: so many numbers, then a code for each column that has levels."""

    @property
    def numbers(self) -> int: ...

    @property
    def levels(self) -> tuple[int, ...]: ...

    @property
    def paid(self) -> bool: ...


class ScaledColumns(nn.Module):
    """(x - m) / sqrt(v) for the numbers of a row: 0 and 1 until the server knows a scale that was
    paid for, and not trained.
    """

    written_as = "scaled-columns"

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.numbers = numbers
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(numbers))
        self.register_buffer("running_var", torch.ones(numbers))

    def forward(self, x: Tensor) -> Tensor:
        scaled = (x[:, : self.numbers] - self.running_mean) / self.running_var.sqrt()
        return torch.cat([scaled, x[:, self.numbers :]], dim=1)

    def extra_repr(self) -> str:
        return f"{self.numbers}"


class OneHotColumns(nn.Module):
    """(B, numbers + columns) to (B, numbers + sum of levels): after the numbers, each code as a row
    of 0 and a 1.
    """

    written_as = "one-hot-columns"

    def __init__(self, numbers: int, levels: tuple[int, ...]) -> None:
        super().__init__()
        self.numbers, self.levels = numbers, levels

    def forward(self, x: Tensor) -> Tensor:
        codes = x[:, self.numbers :].unbind(1)
        hot = [
            (code.unsqueeze(1) == torch.arange(count, device=x.device)).to(x.dtype)
            for code, count in zip(codes, self.levels, strict=True)
        ]
        return torch.cat([x[:, : self.numbers], *hot], dim=1)

    def extra_repr(self) -> str:
        return f"{self.numbers}, {self.levels}"


class EmbeddedColumns(nn.Module):
    """(B, numbers + columns) to (B, numbers + columns * width): after the numbers, what was learnt
    of each code.
    """

    written_as = "embedded-columns"

    def __init__(self, numbers: int, levels: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.numbers = numbers
        self.firsts: Tensor
        self.register_buffer(
            "firsts", torch.tensor((0, *levels[:-1]), dtype=torch.int64).cumsum(0), persistent=False
        )
        self.embedding = nn.Embedding(sum(levels), width)

    def forward(self, x: Tensor) -> Tensor:
        codes = x[:, self.numbers :].long() + self.firsts
        return torch.cat([x[:, : self.numbers], self.embedding(codes).flatten(1)], dim=1)


@dataclass(frozen=True)
class TableModel:
    """A model for rows of a table. It is given dense rows, categories one-hot or embedded by its
    option `embedding`; unless its module says `takes_codes` and embeds them itself."""

    model: WrappedDescription
    numbers: int
    levels: tuple[int, ...]
    paid: bool = False

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def options(self) -> Sequence[tuple[str, object]]:
        return self.model.options

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        module = self._built(classes, seed)
        vars(module)[CODED] = dict(enumerate(self.levels, self.numbers))
        return module

    def _built(self, classes: int, seed: int) -> nn.Module:
        width = dict(self.options).get("embedding")
        if isinstance(self.model, Model) and isinstance(width, int):
            return self._embedded(self.model, width, classes, seed)
        module = self.model.build((self.numbers + sum(self.levels),), classes, seed)
        front: dict[str, nn.Module] = {"paid": ScaledColumns(self.numbers)} if self.paid else {}
        if not getattr(module, "takes_codes", False):
            front["columns"] = OneHotColumns(self.numbers, self.levels)
        return nn.Sequential(OrderedDict(**front, model=module)) if front else module

    def _embedded(self, model: Model, width: int, classes: int, seed: int) -> nn.Module:
        rest = replace(
            model, options=tuple(option for option in model.options if option[0] != "embedding")
        )
        module = rest.build((self.numbers + width * len(self.levels),), classes, seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed ^ 1)
            return nn.Sequential(
                OrderedDict(columns=EmbeddedColumns(self.numbers, self.levels, width), model=module)
            )


def on_columns(model: WrappedDescription, features: ColumnFeatures | None) -> WrappedDescription:
    """The model as it is for samples of another kind than rows of a table."""
    return (
        model
        if features is None
        else TableModel(model, features.numbers, features.levels, features.paid)
    )


def coded(module: nn.Module) -> Mapping[int, int]:
    """Which places of a row hold codes, and of how many levels; none where the module is not on a
    table.
    """
    found: Mapping[int, int] = vars(module).get(CODED, {})
    return found
