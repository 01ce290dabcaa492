"""Descriptions of models. A description builds a module for samples of a shape."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import nn


class Buildable(Protocol):
    """A model that can be trained: a name and options, and a module for samples of a shape."""

    @property
    def name(self) -> str:
        """The name of the model."""

    @property
    def options(self) -> Sequence[tuple[str, object]]:
        """Its options, which with the name say what is built."""

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Builds a module.

        Args:
            shape: The shape of a sample.
            classes: The number of scores.
            seed: Seeds the weights.

        Returns:
            The module.
        """


@dataclass(frozen=True, eq=False)
class ReadyModel:
    """A user's own module. Its weights are the initial weights.

    Attributes:
        module: The module.
        name: The name of its class.
        options: None.
    """

    module: nn.Module = field(repr=False)
    name: str
    options: tuple[tuple[str, object], ...] = ()

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Copies the module.

        Args:
            shape: Not used.
            classes: Not used.
            seed: Not used.

        Returns:
            The copy.
        """
        return copy.deepcopy(self.module)
