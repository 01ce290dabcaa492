"""The mean of a client's samples as a release: asked for once, with noise that is paid for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.accounting.events import Event, gaussian
from dpfl.privacy.mechanisms.clip import MARGIN
from dpfl.privacy.mechanisms.noise import check_noise_multiplier, gaussian_vector
from dpfl.privacy.mechanisms.secure_noise import secure_sum
from dpfl.privacy.queries.histogram import QuerySubject

if TYPE_CHECKING:
    from torch import Tensor


@part("query.mean")
@dataclass(frozen=True)
class MeanQuery:
    """The question for sum_j x_j / n, n as declared; the noise protects one sample, added or
    removed.

    A sample of d numbers counts with a norm of sqrt(d) at most, which is that of normalised
    features: longer ones are scaled down, so that the sum moves by no more, and its noise has
    `multiplier` times that deviation.
    """

    noise_multiplier: float
    secure: bool = False
    trusted = exact = False

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier, " of the mean")

    def with_secure_noise(self) -> MeanQuery:
        return replace(self, secure=True)

    @property
    def event(self) -> Event:
        return gaussian(self.noise_multiplier)

    def answer_width(self, features: int) -> int:
        """How many numbers an answer has, of samples of so many."""
        return features

    def sensitivity(self, width: int) -> float:
        """How far one sample moves the sum, of so many numbers, at most."""
        return math.sqrt(width)

    def ask(self, data: QuerySubject, rng: np.random.Generator) -> np.ndarray:
        return self.answer(data.blocks, data.features, data.declared, rng)

    def exact_sum(self, data: QuerySubject) -> Tensor:
        return bounded_sum(data.blocks, data.features, self.sensitivity(data.features))

    def answer(
        self, blocks: Iterable[Tensor], features: int, size: int, rng: np.random.Generator
    ) -> np.ndarray:
        """From the client's samples, some rows (n, features) at a time."""
        return noisy_mean(blocks, features, self.sensitivity(features), self, size, rng)

    def estimate(self, said: MeanAnswer) -> Tensor:
        """The mean over all who answered, shrunk by what is noise in it (James and Stein): free,
        and 0 where all of it is.
        """
        noise, energy = len(said.mean) * said.noise**2, float(said.mean.square().sum())
        return said.mean.float() * max(0.0, 1.0 - noise / max(energy, 1e-30))


@dataclass(frozen=True)
class MeanAnswer:
    """What clients said together: the mean over their samples, of how many, and the deviation of
    the noise in each number.
    """

    mean: Tensor
    units: int
    noise: float

    @classmethod
    def from_clients(
        cls, answers: Mapping[int, Tensor], declared: Sequence[int], stddev: float
    ) -> MeanAnswer:
        """From the mean of each client, whose sum has noise of this deviation: sum_i (n_i / n)
        a_i.
        """
        known = sum(declared[client] for client in answers)
        mean = torch.stack(
            [answer.double() * (declared[client] / known) for client, answer in answers.items()]
        ).sum(0)
        return cls(mean, known, stddev * math.sqrt(len(answers)) / known)


class NoisyQuery(Protocol):
    """What a question says of its noise: in multiples of what one sample can move a sum, and
    whether it is on a grid.
    """

    @property
    def noise_multiplier(self) -> float: ...
    @property
    def secure(self) -> bool: ...


def noisy_mean(
    vectors: Iterable[Tensor],
    width: int,
    bound: float,
    noise: NoisyQuery,
    size: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """The sum, over a declared size, of what each sample counts with (n, width), some at a time,
    each scaled down to the bound.

    The noise is for one of them; on a grid it is larger by what rounding the sum can move it.
    """
    total, stddev = bounded_sum(vectors, width, bound), noise.noise_multiplier * bound
    noisy = (
        secure_sum(total, stddev, noise.noise_multiplier, rng)
        if noise.secure
        else total + gaussian_vector(width, stddev, rng)
    )
    return (noisy / size).float().numpy()


def bounded_sum(vectors: Iterable[Tensor], width: int, bound: float) -> Tensor:
    """The float64 sum of what each sample counts with, each scaled down to the bound."""
    total = torch.zeros(width, dtype=torch.float64)
    for some in vectors:
        if (
            some.shape[1:] != total.shape
        ):  # a sum would repeat them, and the noise is for each of them once
            raise DpflError(
                f"A sample counts with {some[:1].numel()} numbers here, not with {width}."
            )
        total += scaled_down(some, bound).sum(0)
    return total


def scaled_down(rows: Tensor, bound: float) -> Tensor:
    """Rows whose norm is at most the bound less the margin, in float64; what is not finite counts
    as nothing.

    In float64, so that a row's result differs by some 1e-16 at most from one batch to another,
    which the margin covers.
    """
    rows = rows.double()
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    factors = (bound * (1 - MARGIN) / norms).clamp(max=1.0)
    return torch.where(torch.isfinite(norms), rows * factors, 0.0)
