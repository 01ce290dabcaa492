"""The server's step along the aggregated update; free post-processing of what was released."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dpfl.errors import DpflError


@dataclass(frozen=True)
class ServerUpdate:
    """x <- x + eta_g v, v = momentum v + mean update."""

    rate: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not self.rate > 0 or not 0 <= self.momentum < 1:
            raise DpflError("The server needs a rate above 0 and a momentum from 0 up to, but not including, 1.")

    def step(self, vector: Tensor, velocity: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        velocity = update.add(velocity, alpha=self.momentum) if self.momentum else update
        return vector.add(velocity, alpha=self.rate), velocity
