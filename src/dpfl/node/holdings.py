"""What a client has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Holdings:
    """A client's rows of a larger (shared) data set."""

    x: Tensor
    y: Tensor
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        chosen = self.rows[batch]
        return self.x[chosen], self.y[chosen]
