"""The mean of all samples, which centres a model's inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpfl.codec import part
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.noises.noise import check_noise_multiplier
from dpfl.privacy.queries.bounded_sum import bounded_sum
from dpfl.privacy.queries.query import PrivateQuery, QuerySubject

if TYPE_CHECKING:
    from torch import Tensor


@part("query.mean")
@dataclass(frozen=True)
class MeanQuery(PrivateQuery):
    """Asks for sum_j x_j / n, with n the declared size.

    A sample of d features counts with a norm of at most sqrt(d), which is that of normalised
    features. Longer samples are scaled down, so the sensitivity is sqrt(d).

    Attributes:
        noise_multiplier: The noise's standard deviation over the sensitivity.
        secure: Whether the noise is on a grid.
    """

    noise_multiplier: float
    secure: bool = False

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier, " of the mean")

    def answer_width(self, size: int) -> int:
        return size

    def sensitivity(self, width: int) -> float:
        return math.sqrt(width)

    def exact_sum(self, data: QuerySubject) -> Tensor:
        return bounded_sum(data.blocks, data.features, self.sensitivity(data.features))

    def estimate(self, answer: MeanAnswer) -> Tensor:
        """Shrinks the noisy mean m by the noise in it: m max(0, 1 - d sigma^2 / |m|^2).

        This is the estimator of James and Stein (1961). It is post-processing and costs nothing.

        Args:
            answer: The mean over all clients that answered.

        Returns:
            The estimate; 0 where the mean is all noise.
        """
        noise_energy = len(answer.mean) * answer.noise**2
        energy = float(answer.mean.square().sum())
        return answer.mean.float() * max(0.0, 1.0 - noise_energy / max(energy, 1e-30))


@dataclass(frozen=True)
class MeanAnswer:
    """The clients' answers together.

    Attributes:
        mean: The mean over all units of all clients that answered.
        units: The number of those units, as declared.
        noise: The standard deviation of the noise in each number of the mean.
    """

    mean: Tensor
    units: int
    noise: float

    @classmethod
    def from_clients(
        cls, answers: Mapping[int, Tensor], declared_sizes: Sequence[int], stddev: float
    ) -> MeanAnswer:
        """Combines the clients' means: sum_i (n_i / n) a_i.

        Args:
            answers: The noisy mean of each client, by its number.
            declared_sizes: The declared size n_i of every client.
            stddev: The standard deviation of the noise on each client's sum.

        Returns:
            The mean over the units of all clients that answered.
        """
        units = sum(declared_sizes[client] for client in answers)
        mean = torch.stack(
            [
                answer.double() * (declared_sizes[client] / units)
                for client, answer in answers.items()
            ]
        ).sum(0)
        return cls(mean, units, stddev * math.sqrt(len(answers)) / units)
