"""A client's label counts as a release: asked for once, with noise that is paid for, or (as published) as they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpfl.errors import DpflError
from dpfl.privacy.events import ADD_REMOVE, REPLACE, Event, gaussian

SENSITIVITY = {ADD_REMOVE: 1.0, REPLACE: math.sqrt(2)}
"""L2 sensitivity of a vector of counts: one count moves by one, or two do."""


def distribution(counts: ArrayLike) -> np.ndarray:
    """Counts over the last axis as shares; a client of whom nothing is known (all zero) is taken as balanced."""
    values = np.asarray(counts, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise DpflError("A label histogram needs at least one class.")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise DpflError("A label histogram needs finite counts of at least 0.")
    largest = values.max(axis=-1, keepdims=True)
    filled = np.where(largest > 0, values / np.where(largest > 0, largest, 1.0), 1.0)  # so that the sum cannot overflow
    shares: np.ndarray = filled / filled.sum(axis=-1, keepdims=True)
    return shares


def private_histogram(
    counts: ArrayLike, multiplier: float, rng: np.random.Generator, neighbours: str = ADD_REMOVE
) -> np.ndarray:
    """Shares from noisy counts: Gaussian noise for the sensitivity, then clamp and normalise, which is free.

    It costs one `gaussian(multiplier)` event, to be debited before it leaves the client.
    """
    if not (multiplier > 0 and math.isfinite(multiplier)):
        raise DpflError(f"The noise multiplier of the histogram must be a positive number, not {multiplier}.")
    if neighbours not in SENSITIVITY:
        raise DpflError(f"There are no neighbours {neighbours!r}; choose one of {', '.join(SENSITIVITY)}.")
    exact = np.asarray(counts, dtype=np.float64)
    if exact.ndim != 1 or not exact.size or not np.isfinite(exact).all():
        raise DpflError("A private histogram needs one finite count a class.")
    noisy = exact + multiplier * SENSITIVITY[neighbours] * rng.standard_normal(exact.shape)
    return distribution(np.maximum(noisy, 0.0))


@dataclass(frozen=True)
class Survey:
    """The question for label shares; the noise protects one sample, added or removed. Without a multiplier there is none.

    A `trusted` server may have them exactly where it only ever shows sums with noise for whole clients.
    """

    multiplier: float | None
    trusted: bool = False

    def __post_init__(self) -> None:
        if self.multiplier is not None and not (self.multiplier > 0 and math.isfinite(self.multiplier)):
            raise DpflError(f"The noise multiplier of the histogram must be a positive number, not {self.multiplier}.")

    @property
    def event(self) -> Event:
        return gaussian(self.multiplier or 0.0)

    def answer(self, labels: np.ndarray, classes: int, rng: np.random.Generator) -> np.ndarray:
        counts = np.bincount(labels, minlength=classes)
        return distribution(counts) if self.multiplier is None else private_histogram(counts, self.multiplier, rng)
