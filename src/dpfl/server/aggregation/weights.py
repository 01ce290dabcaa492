"""The weights of clients: how much each of them counts.

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
from dpfl.server.aggregation.hellinger import hellinger_scores, hellinger_weights

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.privacy import Release

Answers = Mapping[int, np.ndarray]
"""What each client answered to the query of the weights."""


class Weights(Protocol):
    """Sets how much each client counts."""

    def with_secure_noise(self) -> Weights:
        """Puts secure noise on what clients are asked.

        Returns:
            The weights whose query, if there is one, has secure noise.
        """

    @property
    def equal(self) -> bool:
        """Whether all clients count the same."""

    @property
    def query(self) -> LabelQuery | None:
        """What clients are asked before the first round."""

    def of(self, declared_sizes: Sequence[int], answers: Answers | None = None) -> Tensor:
        """Computes the weights.

        Args:
            declared_sizes: How many samples each client declared.
            answers: What clients answered to the query; None where there is none.

        Returns:
            One weight from 0 to 1 per client of the federation.
        """

    def usual(self, declared_sizes: Sequence[int]) -> float:
        """Computes the mean weight as far as it is public. It is part of the divisor of a private
        sum, whatever the weights are.

        Args:
            declared_sizes: How many samples each client declared.

        Returns:
            A number above 0 and at most 1.
        """


def compute_weights(
    weights: Weights, declared_sizes: Sequence[int], answers: Answers | None = None
) -> Tensor:
    """Computes the weights of a run, and refuses weights that the noise would not cover.

    Noise is for a weight of at most 1. The check comes before anything is paid.

    Args:
        weights: How much each client counts.
        declared_sizes: How many samples each client declared.
        answers: What clients answered to the query; None where there is none.

    Returns:
        One weight per client.

    Raises:
        DpflError: A weight lies outside 0 to 1, there is not one weight per client, or the usual
            weight is not above 0 and at most 1.
    """
    each = weights.of(declared_sizes, answers)
    if tuple(each.shape) != (len(declared_sizes),) or not bool(((each >= 0) & (each <= 1)).all()):
        raise DpflError(
            f"{type(weights).__name__} must give every client a weight from 0 to 1: divide by the "
            "largest."
        )
    if not 0 < weights.usual(declared_sizes) <= 1:
        raise DpflError(
            f"The usual weight of {type(weights).__name__} must be above 0 and at most 1: sums "
            "are divided by it."
        )
    return each


def round_divisor(release: Release, weights: Weights, declared_sizes: Sequence[int]) -> float:
    """Computes what the noisy sum of a round is divided by, which is fixed before the draw.

    Args:
        release: The release of the round.
        weights: How much each client counts.
        declared_sizes: How many samples each client declared.

    Returns:
        The expected cohort times the usual weight.
    """
    return release.divisor_for(len(declared_sizes)) * weights.usual(declared_sizes)


@part("weights.uniform")
@dataclass(frozen=True)
class UniformWeights(Weights):
    """Weights that are the same for all clients."""

    query = None
    equal = True

    def with_secure_noise(self) -> UniformWeights:
        return self

    def of(self, declared_sizes: Sequence[int], answers: Answers | None = None) -> Tensor:
        return torch.ones(len(declared_sizes))

    def usual(self, declared_sizes: Sequence[int]) -> float:
        return 1.0


@part("weights.by-size")
@dataclass(frozen=True)
class SizeWeights(Weights):
    """Weights by declared size, over the largest declared size."""

    query = None
    equal = False

    def with_secure_noise(self) -> SizeWeights:
        return self

    def of(self, declared_sizes: Sequence[int], answers: Answers | None = None) -> Tensor:
        return torch.tensor(declared_sizes, dtype=torch.ones(0).dtype) / max(declared_sizes)

    def usual(self, declared_sizes: Sequence[int]) -> float:
        return float(self.of(declared_sizes).mean())


@part("weights.hellinger")
@dataclass(frozen=True)
class HellingerWeights:
    """Weights by the Hellinger distance h of a client's labels to balanced ones, or by their
    similarity 1 - h (HW-DPFL).

    Under a trusted server each weight comes from that client's labels alone, so a private sum of
    weighted updates is no more sensitive than one of updates. Elsewhere uploads carry their own
    noise and the weights add up to 1; if all scores are 0, they are uniform.

    Attributes:
        kind: "distance" for h, "similarity" for 1 - h.
        query: The query for label histograms.
    """

    kind: str
    query: LabelQuery
    equal = False

    def with_secure_noise(self) -> HellingerWeights:
        """Puts secure noise on the label histograms.

        Returns:
            The weights with that query.
        """
        return replace(self, query=self.query.with_secure_noise())

    def of(self, declared_sizes: Sequence[int], answers: Answers | None = None) -> Tensor:
        """Computes the weights from label histograms.

        Args:
            declared_sizes: How many samples each client declared.
            answers: The histogram of each client that answered.

        Returns:
            One weight per client: 0 for a client that gave no answer, and 1 for all before anybody
            answered.
        """
        if not answers:
            return torch.ones(len(declared_sizes))
        weights = torch.zeros(len(declared_sizes))
        scores = hellinger_scores if self.query.trusted else hellinger_weights
        weights[list(answers)] = torch.from_numpy(
            scores(np.stack(list(answers.values())), self.kind)
        ).float()
        return weights

    def usual(self, declared_sizes: Sequence[int]) -> float:
        """Returns 1: the labels that the mean weight depends on are not public.

        Args:
            declared_sizes: How many samples each client declared.

        Returns:
            1.
        """
        return 1.0
