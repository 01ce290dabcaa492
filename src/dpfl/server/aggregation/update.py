"""The server's step along the aggregated update. It is post-processing of what was released, and
costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector

if TYPE_CHECKING:
    from torch import Tensor


@part("server-update", learning_rate="rate")
@dataclass(frozen=True)
class ServerUpdate:
    """The server's step x <- x + eta_g v with v <- momentum v + mean update.

    Attributes:
        rate: The server's learning rate eta_g, above 0.
        momentum: The momentum, from 0 up to, but not including, 1.
        noise: The standard deviation of the noise that NbAFL adds to the model that it sends.
        averaging: The power p of an average over the iterates in which x_t weighs about t^p (Shamir
            and Zhang 2013); 0 for none.
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
        """Takes one step along a mean update.

        Args:
            vector: The global model x.
            velocity: The velocity v of the last round.
            update: The mean update.
            rng: Draws the noise, where the server adds some to the model.

        Returns:
            The new model and the new velocity. The arguments stay as they are.
        """
        velocity = update.add(velocity, alpha=self.momentum) if self.momentum else update
        following = vector.add(velocity, alpha=self.rate)
        if self.noise and rng:
            following += gaussian_vector(len(following), self.noise, rng)
        return following, velocity

    def next_average(self, average: Tensor | None, vector: Tensor, round: int) -> Tensor | None:
        """Updates the average of the iterates, x <- x + (p + 1) / (t + p) (x_t - x).

        Args:
            average: The average x after the last round; None after the first.
            vector: The model x_t of this round.
            round: The number t of the round, from 1.

        Returns:
            The new average; None where the algorithm averages nothing.
        """
        if not self.averaging:
            return None
        return (
            vector.clone()
            if average is None
            else average.lerp(vector, (self.averaging + 1) / (round + self.averaging))
        )
