"""How much each client counts. Weights come from sizes that were declared before training, never from fresh counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, ones, tensor


class Weights(Protocol):
    def of(self, declared: Sequence[int]) -> Tensor:
        """A weight for every client of the population, the largest being 1."""


@dataclass(frozen=True)
class Uniform:
    def of(self, declared: Sequence[int]) -> Tensor:
        return ones(len(declared))


@dataclass(frozen=True)
class BySize:
    def of(self, declared: Sequence[int]) -> Tensor:
        return tensor(declared, dtype=ones(0).dtype) / max(declared)
