"""The server's step along the aggregated update; free post-processing of what was released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.noise import gaussian_vector

if TYPE_CHECKING:
    from torch import Tensor


@part("server-update", learning_rate="rate")
@dataclass(frozen=True)
class ServerUpdate:
    """x <- x + eta_g v, v = momentum v + mean update; NbAFL adds `noise` of this deviation to what
    it sends.

    With `averaging` p above 0 the model is a mean of the iterates in which x_t weighs about t^p
    (Shamir and Zhang 2013).
    """

    rate: float = 1.0
    momentum: float = 0.0
    noise: float = 0.0
    averaging: float = 0.0

    def __post_init__(self) -> None:
        if not self.rate > 0 or not 0 <= self.momentum < 1:
            raise DpflError(
                "The server needs a rate above 0 and a momentum from 0 up to, but not including, 1."
            )
        if not 0 <= self.averaging < math.inf:
            raise DpflError(
                f"The power of averaging must be a number of at least 0, not {self.averaging}; 0 "
                "is none."
            )

    def step(
        self,
        vector: Tensor,
        velocity: Tensor,
        update: Tensor,
        rng: np.random.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        velocity = update.add(velocity, alpha=self.momentum) if self.momentum else update
        moved = vector.add(velocity, alpha=self.rate)
        if self.noise and rng:
            moved += gaussian_vector(len(moved), self.noise, rng)
        return moved, velocity

    def averaged(self, average: Tensor | None, vector: Tensor, round: int) -> Tensor | None:
        """After a round, counted from 1."""
        if not self.averaging:
            return None
        return (
            vector.clone()
            if average is None
            else average.lerp(vector, (self.averaging + 1) / (round + self.averaging))
        )
