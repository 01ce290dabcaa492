"""How much each client counts.

Weights come from sizes that were declared before training, or from an answer that was paid for; never from fresh counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor, from_numpy, ones, tensor

from dpfl.privacy.histogram import Survey
from dpfl.server.hellinger import hellinger_weights

Answers = Mapping[int, np.ndarray]


class Weights(Protocol):
    @property
    def survey(self) -> Survey | None:
        """What clients are asked before the first round."""

    def of(self, declared: Sequence[int], answers: Answers | None = None) -> Tensor:
        """A weight for every client of the population, the largest being 1."""


@dataclass(frozen=True)
class Uniform:
    survey = None

    def of(self, declared: Sequence[int], answers: Answers | None = None) -> Tensor:
        return ones(len(declared))


@dataclass(frozen=True)
class BySize:
    survey = None

    def of(self, declared: Sequence[int], answers: Answers | None = None) -> Tensor:
        return tensor(declared, dtype=ones(0).dtype) / max(declared)


@dataclass(frozen=True)
class Hellinger:
    """By the Hellinger distance of a client's labels to balanced ones, or by similarity; 0 for who gave no answer."""

    kind: str
    survey: Survey

    def of(self, declared: Sequence[int], answers: Answers | None = None) -> Tensor:
        weights = ones(len(declared))
        if answers:
            found = hellinger_weights(np.stack(list(answers.values())), self.kind)
            weights.zero_()
            weights[list(answers)] = from_numpy(found / found.max()).float()
        return weights
