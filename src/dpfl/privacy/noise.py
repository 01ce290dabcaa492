"""Noise of a release, in units of its sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl.errors import DpflError


@dataclass(frozen=True)
class Gaussian:
    """N(0, (multiplier * sensitivity)^2) on every coordinate."""

    multiplier: float

    def __post_init__(self) -> None:
        if not (self.multiplier > 0 and math.isfinite(self.multiplier)):
            raise DpflError(f"The noise multiplier must be a positive number, not {self.multiplier}.")


@dataclass(frozen=True)
class Planned:
    """Gaussian noise whose multiplier is still to be found, from the budget, before the first round."""


def gaussian_vector(size: int, deviation: float, rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(rng.standard_normal(size, dtype=np.float32)).mul_(deviation)
