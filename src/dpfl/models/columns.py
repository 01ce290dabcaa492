"""Models on tables: rows of numbers and codes, made dense a batch at a time.

So wide tables stay small.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from dpfl.models.catalog import Model

CODED_COLUMNS = "coded_columns"


class WrappedDescription(Protocol):
    """The description of a model that is put on a table."""

    @property
    def name(self) -> str:
        """The name of the model."""

    @property
    def options(self) -> Sequence[tuple[str, object]]:
        """Its options."""

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Builds a module.

        Args:
            shape: The shape of a dense row.
            classes: The number of scores.
            seed: Seeds the weights.

        Returns:
            The module.
        """


class ColumnFeatures(Protocol):
    """The layout of a row: numbers first, then a code for each column that has levels."""

    @property
    def numbers(self) -> int:
        """How many numbers there are."""

    @property
    def levels(self) -> tuple[int, ...]:
        """The number of levels of each other column."""

    @property
    def has_paid_scales(self) -> bool:
        """Whether some numbers have a scale that is measured, and paid for, before training."""


class ScaledColumns(nn.Module):
    """(x - m) / sqrt(v) for the numbers of a row. It is not trained.

    m and v are 0 and 1 until the server sets those that were paid for.

    Args:
        numbers: How many numbers there are.
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
        """Scales the numbers, and leaves the codes as they are.

        Args:
            x: The rows (B, numbers + columns).

        Returns:
            The rows in the same layout.
        """
        scaled_numbers = (x[:, : self.numbers] - self.running_mean) / self.running_var.sqrt()
        return torch.cat([scaled_numbers, x[:, self.numbers :]], dim=1)

    def extra_repr(self) -> str:
        """Names the settings of this layer in the text of a module.

        Returns:
            How many numbers there are.
        """
        return f"{self.numbers}"


class OneHotColumns(nn.Module):
    """Makes each code a one-hot vector: (B, numbers + columns) to (B, numbers + sum of levels).

    Args:
        numbers: How many numbers there are.
        levels: The number of levels of each other column.
    """

    written_as = "one-hot-columns"

    def __init__(self, numbers: int, levels: tuple[int, ...]) -> None:
        super().__init__()
        self.numbers, self.levels = numbers, levels

    def forward(self, x: Tensor) -> Tensor:
        """Writes each code as a one-hot vector. A code without a level becomes zeros.

        Args:
            x: The rows (B, numbers + columns).

        Returns:
            The dense rows (B, numbers + sum of levels).
        """
        codes = x[:, self.numbers :].unbind(1)
        hot = [
            (code.unsqueeze(1) == torch.arange(count, device=x.device)).to(x.dtype)
            for code, count in zip(codes, self.levels, strict=True)
        ]
        return torch.cat([x[:, : self.numbers], *hot], dim=1)

    def extra_repr(self) -> str:
        """Names the settings of this layer in the text of a module.

        Returns:
            How many numbers there are, and the levels of each other column.
        """
        return f"{self.numbers}, {self.levels}"


class EmbeddedColumns(nn.Module):
    """Makes each code an embedding: (B, numbers + columns) to (B, numbers + columns * width).

    Args:
        numbers: How many numbers there are.
        levels: The number of levels of each other column.
        width: The width of an embedding.
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
        """Looks each code up in the table of its column.

        Args:
            x: The rows (B, numbers + columns).

        Returns:
            The dense rows (B, numbers + columns * width).
        """
        codes = x[:, self.numbers :].long() + self.firsts
        return torch.cat([x[:, : self.numbers], self.embedding(codes).flatten(1)], dim=1)


@dataclass(frozen=True)
class TableModel:
    """A model for rows of a table.

    The module gets dense rows, with categories one-hot, or embedded by its option `embedding`. One
    that sets `takes_codes` gets the codes.

    Attributes:
        model: The model without a table.
        numbers: How many numbers there are.
        levels: The number of levels of each other column.
        has_paid_scales: Whether some numbers have a scale that is measured before training.
    """

    model: WrappedDescription
    numbers: int
    levels: tuple[int, ...]
    has_paid_scales: bool = False

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model.name

    @property
    def options(self) -> Sequence[tuple[str, object]]:
        """Its options."""
        return self.model.options

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Builds a module for rows with codes.

        Args:
            shape: Not used: a row has the declared layout.
            classes: The number of scores.
            seed: Seeds the weights.

        Returns:
            The module.
        """
        module = self._build_columns(classes, seed)
        vars(module)[CODED_COLUMNS] = dict(enumerate(self.levels, self.numbers))
        return module

    def _build_columns(self, classes: int, seed: int) -> nn.Module:
        width = dict(self.options).get("embedding")
        if isinstance(self.model, Model) and isinstance(width, int):
            return self._build_embedded(self.model, width, classes, seed)
        module = self.model.build((self.numbers + sum(self.levels),), classes, seed)
        front: dict[str, nn.Module] = (
            {"paid": ScaledColumns(self.numbers)} if self.has_paid_scales else {}
        )
        if not getattr(module, "takes_codes", False):
            front["columns"] = OneHotColumns(self.numbers, self.levels)
        return nn.Sequential(OrderedDict(**front, model=module)) if front else module

    def _build_embedded(self, model: Model, width: int, classes: int, seed: int) -> nn.Module:
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
    """Fits a model to the samples of a data set.

    Args:
        model: The model.
        features: How a row is laid out; None where samples are no rows of a table.

    Returns:
        The model on a table, or the model as it is.
    """
    return (
        model
        if features is None
        else TableModel(model, features.numbers, features.levels, features.has_paid_scales)
    )


def find_coded_places(module: nn.Module) -> Mapping[int, int]:
    """Finds which places of a row hold codes.

    Args:
        module: The module.

    Returns:
        The number of levels by place; none where the module is not on a table.
    """
    levels: Mapping[int, int] = vars(module).get(CODED_COLUMNS, {})
    return levels
