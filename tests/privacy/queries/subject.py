"""The data of one client as queries read it, from rows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class RowSubject:
    """Rows of one client in blocks of 7, each with label 0, and the terms of a metric."""

    rows: torch.Tensor
    declared_size: int

    @property
    def counts(self) -> np.ndarray:
        return np.array([len(self.rows), 0])

    @property
    def blocks(self) -> Iterable[torch.Tensor]:
        return self.rows.split(7)

    @property
    def features(self) -> int:
        return self.rows.shape[1]

    def vectors(
        self, of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    ) -> Iterable[torch.Tensor]:
        return (of(rows, torch.zeros(len(rows))) for rows in self.blocks)

    def metric_terms(self, most: float) -> Iterable[torch.Tensor]:
        return self.blocks
