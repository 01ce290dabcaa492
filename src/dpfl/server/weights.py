"""How much each client counts.

Weights come from sizes that were declared before training, or from an answer that was paid for;
never from fresh counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.server.hellinger import hellinger_scores, hellinger_weights

if TYPE_CHECKING:
    from torch import Tensor

Answers = Mapping[int, np.ndarray]


class Weights(Protocol):
    """How much each client counts."""

    def with_secure_noise(self) -> Weights:
        """With secure noise on what clients are asked."""

    @property
    def equal(self) -> bool:
        """Whether all clients count the same."""

    @property
    def query(self) -> LabelQuery | None:
        """What clients are asked before the first round."""

    def of(self, declared: Sequence[int], answers: Answers | None = None) -> Tensor:
        """A weight from 0 to 1 for every client of the population."""

    def usual(self, declared: Sequence[int]) -> float:
        """The mean weight as far as it is public: what a private sum is divided by, whatever the
        weights are.
        """


def compute_weights(
    weights: Weights, declared: Sequence[int], answers: Answers | None = None
) -> Tensor:
    """The weights of a run, refused before anything is paid where noise for the largest of them, 1,
    would not cover them.
    """
    each = weights.of(declared, answers)
    if tuple(each.shape) != (len(declared),) or not bool(((each >= 0) & (each <= 1)).all()):
        raise DpflError(
            f"{type(weights).__name__} must give every client a weight from 0 to 1: divide by the "
            "largest."
        )
    if not 0 < weights.usual(declared) <= 1:
        raise DpflError(
            f"The usual weight of {type(weights).__name__} must lie above 0 and at most at 1: it "
            "is divided by."
        )
    return each


@part("weights.uniform")
@dataclass(frozen=True)
class UniformWeights:
    """All clients count alike."""

    query = None
    equal = True

    def with_secure_noise(self) -> UniformWeights:
        return self

    def of(self, declared: Sequence[int], answers: Answers | None = None) -> Tensor:
        return torch.ones(len(declared))

    def usual(self, declared: Sequence[int]) -> float:
        return 1.0


@part("weights.by-size")
@dataclass(frozen=True)
class SizeWeights:
    """A client counts by its declared size."""

    query = None
    equal = False

    def with_secure_noise(self) -> SizeWeights:
        return self

    def of(self, declared: Sequence[int], answers: Answers | None = None) -> Tensor:
        return torch.tensor(declared, dtype=torch.ones(0).dtype) / max(declared)

    def usual(self, declared: Sequence[int]) -> float:
        return float(self.of(declared).mean())


@part("weights.hellinger")
@dataclass(frozen=True)
class HellingerWeights:
    """By the Hellinger distance h of a client's labels to balanced ones, or by similarity (1 - h);
    0 for who gave no answer.

    Each weight comes from that client's labels alone, so a private sum of weighted updates is no
    more sensitive than one of updates. Where the weights only divide among clients whose uploads
    carry noise, all zeros count as uniform.
    """

    kind: str
    query: LabelQuery
    equal = False

    def with_secure_noise(self) -> HellingerWeights:
        return replace(self, query=self.query.with_secure_noise())

    def of(self, declared: Sequence[int], answers: Answers | None = None) -> Tensor:
        if not answers:
            return torch.ones(len(declared))
        weights, scores = (
            torch.zeros(len(declared)),
            hellinger_scores if self.query.trusted else hellinger_weights,
        )
        weights[list(answers)] = torch.from_numpy(
            scores(np.stack(list(answers.values())), self.kind)
        ).float()
        return weights

    def usual(self, declared: Sequence[int]) -> float:
        return 1.0
