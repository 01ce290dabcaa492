"""The next token of a sequence: a sample is a whole sequence, its loss the mean over its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.errors import DpflError
from dpfl.lazy import functional, torch
from dpfl.tasks import metrics as measured
from dpfl.tasks.task import Array, Labels, between, check_scores, whole

if TYPE_CHECKING:
    from torch import Tensor

PADDING = -100
"""The label of a place that does not count."""


@dataclass(frozen=True)
class NextToken:
    """Labels (n, places) are the tokens that follow, or -100 where nothing is to be predicted; scores (n, places, vocabulary).

    A sequence of which no place counts has the loss 0: a mean over its own tokens, never over those of a batch.
    """

    vocabulary: int
    name = "tokens"
    classes = 0
    reads = "tokens"
    headline = "perplexity"

    def __post_init__(self) -> None:
        if not isinstance(self.vocabulary, int) or isinstance(self.vocabulary, bool) or self.vocabulary < 2:
            raise DpflError(f"A vocabulary needs a whole number of at least 2 tokens, not {self.vocabulary!r}.")

    @property
    def outputs(self) -> int:
        return self.vocabulary

    def labels(self, given: Labels) -> Tensor:
        found = whole(given, "Tokens")
        if found.dim() != 2:
            raise DpflError(f"Tokens must be a row a sequence, (n, places), but have the shape {tuple(found.shape)}.")
        between(found[found != PADDING], 0, self.vocabulary - 1, "Tokens")
        return found

    def examples(self, places: int) -> Tensor:
        tokens = torch.arange(-(-self.vocabulary // places) * places) % self.vocabulary
        return torch.cat([tokens.view(-1, places), torch.full((1, places), PADDING)])

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        check_scores(scores, (*y.shape, self.vocabulary), self)
        losses = functional.cross_entropy(scores.transpose(1, 2), y, reduction="none", ignore_index=PADDING)
        return (losses * _shares(y)).sum(1)

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        check_scores(scores, (*y.shape, self.vocabulary), self)
        logs, places, share = scores.log_softmax(2), y.clamp(min=0).unsqueeze(2), _shares(y)
        losses = -(logs.gather(2, places).squeeze(2) * share).sum(1)
        slopes = logs.exp()
        slopes.scatter_add_(2, places, -torch.ones_like(places, dtype=slopes.dtype))
        return losses, slopes.mul_(share.unsqueeze(2))

    def metrics(self, scores: Array, y: Array) -> Mapping[str, float]:
        return self.of_sums(self.sums(scores, y))

    shown = metrics

    def sums(self, scores: Array, y: Array) -> Array:
        """(n, 3) of each sequence: how many places count, at how many of them the best score is right, and their log losses."""
        counted, truth = y != PADDING, np.maximum(y, 0)[:, :, None]
        chances = np.take_along_axis(measured.softmax(scores), truth, axis=2)[:, :, 0]
        lost = -np.log(np.maximum(chances, measured.SMALLEST))
        right = scores.argmax(axis=2) == y
        return np.stack([counted.sum(1), (right & counted).sum(1), (lost * counted).sum(1)], axis=1)

    def of_sums(self, sums: Array) -> Mapping[str, float]:
        count, right, lost = sums.sum(axis=0).tolist()
        if not count:
            return dict.fromkeys(("perplexity", "accuracy", "log loss"), float("nan"))
        return {"perplexity": float(np.exp(min(lost / count, 700.0))), "accuracy": right / count, "log loss": lost / count}


def _shares(y: Tensor) -> Tensor:
    """1 over the places that count in a sequence, 0 at those that do not."""
    counted = (y != PADDING).float()
    return counted / counted.sum(1, keepdim=True).clamp(min=1)
