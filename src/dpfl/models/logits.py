"""Models of Hugging Face's transformers, and peft's adapters on them. Neither is imported here: a
model is given ready.
"""

from __future__ import annotations

import copy

from torch import Tensor, nn

from dpfl.errors import DpflError
from dpfl.models.catalog import ReadyModel


class Logits(nn.Module):
    """Rows of token numbers in, the model's logits out, and nothing else; no token is masked."""

    written_as = "logits"

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=tokens.long()).logits
        return logits


def hugging_face(model: nn.Module) -> ReadyModel:
    """A model that takes `input_ids` and returns `logits`: for the next token (task "tokens") or
    for a label of a sequence.

    What has `requires_grad` is trained, clipped, noised and sent; the rest is frozen, stays where
    it is, and is part of the model's hash. Names in the saved file are the model's own after
    "model.".
    """
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise DpflError(
            "hugging_face takes a ready model of transformers or peft, not a "
            f"{type(model).__name__}."
        )
    return ReadyModel(Logits(copy.deepcopy(model)), type(model).__name__)
