"""The next token of a sequence. A sample is a whole sequence; its loss is the mean over its
tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.codec import part
from dpfl.deprecation import renamed_keywords
from dpfl.errors import DpflError
from dpfl.lazy_import import functional, torch
from dpfl.tasks import metrics as measured
from dpfl.tasks.label_checks import between, whole
from dpfl.tasks.task import Array, BaseTask, Labels, check_scores

if TYPE_CHECKING:
    from torch import Tensor

PADDING = -100
"""The label of a place that does not count."""


@part("target.next-token")
@dataclass(frozen=True)
class NextToken(BaseTask):
    """Predicts the token that follows, at every place.

    Labels (n, places) are the tokens that follow, or -100 where nothing is predicted; scores are
    (n, places, vocabulary). A sequence without a place that counts has the loss 0. The mean is over
    a sequence's own tokens, never over those of a batch.

    Attributes:
        vocabulary: The number of tokens.
    """

    vocabulary: int
    name = "tokens"
    classes = 0
    reads = "tokens"
    headline = "perplexity"

    def __post_init__(self) -> None:
        if (
            not isinstance(self.vocabulary, int)
            or isinstance(self.vocabulary, bool)
            or self.vocabulary < 2
        ):
            raise DpflError(
                f"A vocabulary needs a whole number of at least 2 tokens, not {self.vocabulary!r}."
            )

    @property
    def outputs(self) -> int:
        """One score for each token."""
        return self.vocabulary

    @renamed_keywords(given="values")
    def labels(self, values: Labels) -> Tensor:
        tokens = whole(values, "Tokens")
        if tokens.dim() != 2:
            raise DpflError(
                "Tokens must have one row per sequence, shape (n, places), but have the shape "
                f"{tuple(tokens.shape)}."
            )
        between(tokens[tokens != PADDING], 0, self.vocabulary - 1, "Tokens")
        return tokens

    def examples(self, places: int) -> Tensor:
        tokens = torch.arange(-(-self.vocabulary // places) * places) % self.vocabulary
        return torch.cat([tokens.view(-1, places), torch.full((1, places), PADDING)])

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        check_scores(scores, (*y.shape, self.vocabulary), self)
        losses = functional.cross_entropy(
            scores.transpose(1, 2), y, reduction="none", ignore_index=PADDING
        )
        return (losses * _shares(y)).sum(1)

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        check_scores(scores, (*y.shape, self.vocabulary), self)
        logs, places, share = scores.log_softmax(2), y.clamp(min=0).unsqueeze(2), _shares(y)
        losses = -(logs.gather(2, places).squeeze(2) * share).sum(1)
        slopes = logs.exp()
        slopes.scatter_add_(2, places, -torch.ones_like(places, dtype=slopes.dtype))
        return losses, slopes.mul_(share.unsqueeze(2))

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        counts, truth = y != PADDING, np.maximum(y, 0)[:, :, None]
        chances = np.take_along_axis(measured.softmax(scores), truth, axis=2)[:, :, 0]
        loss_sum = (-np.log(np.maximum(chances, measured.SMALLEST)) * counts).sum(1) @ times
        right, count = (
            ((scores.argmax(axis=2) == y) & counts).sum(1) @ times,
            counts.sum(1) @ times,
        )
        loss = measured.over(loss_sum, count)
        return {
            "perplexity": np.exp(np.minimum(loss, 700.0)),
            "accuracy": measured.over(right, count),
            "log loss": loss,
        }


def _shares(y: Tensor) -> Tensor:
    """Computes 1 over the places that count in a sequence, and 0 at those that do not."""
    counts = (y != PADDING).float()
    return counts / counts.sum(1, keepdim=True).clamp(min=1)
