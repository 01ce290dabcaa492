"""A client's label distribution, which weighs clients by how balanced their labels are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpfl.bad_values import require_name
from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE
from dpfl.privacy.mechanisms.noises.noise import check_noise_multiplier
from dpfl.privacy.mechanisms.noises.secure_noise import secure_sum
from dpfl.privacy.queries.query import PrivateQuery, QuerySubject

if TYPE_CHECKING:
    from torch import Tensor

SENSITIVITY = {ADD_REMOVE: 1.0, REPLACE: math.sqrt(2)}
"""L2 sensitivity of a vector of counts: one count moves by 1, or two counts do."""

ROUNDING = 0.001
"""How far a float32 distribution may be from a sum of 1."""


def distribution(counts: ArrayLike) -> np.ndarray:
    """Normalises counts to shares that sum to 1.

    Args:
        counts: Counts over the last axis, finite and at least 0.

    Returns:
        The shares. Counts that are all 0 give the uniform distribution.

    Raises:
        DpflError: If there is no class, or a count is negative or not finite.
    """
    values = np.asarray(counts, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise DpflError("A label histogram needs at least one class.")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise DpflError("A label histogram needs finite counts of at least 0.")
    largest = values.max(axis=-1, keepdims=True)
    scaled_values = values / np.where(largest > 0, largest, 1.0)  # the sum cannot overflow
    scaled_values = np.where(largest > 0, scaled_values, 1.0)
    shares: np.ndarray = scaled_values / scaled_values.sum(axis=-1, keepdims=True)
    return shares


def private_histogram(
    counts: ArrayLike,
    noise_multiplier: float,
    rng: np.random.Generator,
    neighbours: str = ADD_REMOVE,
    secure: bool = False,
) -> np.ndarray:
    """Releases label counts: counts + N(0, (z S)^2 I), clamped at 0 and normalised.

    Clamping and normalising are post-processing. The release costs one `gaussian(z)` event, which
    the client debits before the shares leave it. Noise on a grid is larger by what rounding the
    counts to the grid can move them (`secure_sum`).

    Args:
        counts: One finite count per class.
        noise_multiplier: The noise z over the sensitivity S.
        rng: The generator of the noise.
        neighbours: The neighbouring relation, which sets S.
        secure: Whether the noise is on a grid.

    Returns:
        The noisy shares.

    Raises:
        DpflError: If the counts, the multiplier or the neighbours are not usable.
    """
    check_noise_multiplier(noise_multiplier, " of the histogram")
    require_name("definition of neighbours", neighbours, SENSITIVITY)
    exact = np.asarray(counts, dtype=np.float64)
    if exact.ndim != 1 or not exact.size or not np.isfinite(exact).all():
        raise DpflError("A private histogram needs one finite count per class.")
    stddev = noise_multiplier * SENSITIVITY[neighbours]
    if secure:
        noisy = secure_sum(torch.from_numpy(exact), stddev, noise_multiplier, rng).double().numpy()
    else:
        noisy = exact + stddev * rng.standard_normal(exact.shape)
    return distribution(np.maximum(noisy, 0.0))


@part("query.histogram")
@dataclass(frozen=True)
class LabelQuery(PrivateQuery):
    """Asks for the share of each label. Its sensitivity is 1: one unit changes one count by 1.

    The server weighs each client by its own distribution, so the answers are not summable.

    Attributes:
        noise_multiplier: The noise's standard deviation over the sensitivity. None adds no noise,
            as published.
        trusted: Whether a trusted server gets the exact counts. It only ever shows sums with noise
            for whole clients.
        secure: Whether the noise is on a grid.
    """

    noise_multiplier: float | None
    trusted: bool = False
    secure: bool = False
    summable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            check_noise_multiplier(self.noise_multiplier, " of the histogram")

    def answer_width(self, size: int) -> int:
        return size

    def sensitivity(self, width: int) -> float:
        return SENSITIVITY[ADD_REMOVE]

    def exact_sum(self, data: QuerySubject) -> Tensor:
        return torch.from_numpy(np.asarray(data.counts, dtype=np.float64))

    def answer(self, data: QuerySubject, rng: np.random.Generator) -> np.ndarray:
        if self.noise_multiplier is None:
            return distribution(data.counts)
        return private_histogram(data.counts, self.noise_multiplier, rng, secure=self.secure)

    def matches_data(self, features: int, classes: int) -> bool:
        return bool(classes)

    def admits(self, answer: np.ndarray, declared_size: int) -> bool:
        in_range = bool(((answer >= 0) & (answer <= 1 + ROUNDING)).all())
        return in_range and bool(abs(answer.sum() - 1) < ROUNDING)
