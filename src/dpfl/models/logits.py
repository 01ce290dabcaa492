"""Models of Hugging Face's transformers, and peft's adapters on them.

Neither library is imported here: the user gives a ready model.
"""

from __future__ import annotations

import copy

from torch import Tensor, nn

from dpfl.errors import DpflError
from dpfl.models.descriptions import ReadyModel


class Logits(nn.Module):
    """Maps rows of token numbers to the model's logits. No token is masked.

    Args:
        model: A model that takes `input_ids` and returns `logits`.
    """

    written_as = "logits"

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Runs the model.

        Args:
            tokens: Token numbers (B, places), in any type that holds them exactly.

        Returns:
            The logits, in the shape that the model returns.
        """
        logits: Tensor = self.model(input_ids=tokens.long()).logits
        return logits


def hugging_face(model: nn.Module) -> ReadyModel:
    """Wraps a ready model of transformers or peft.

    What has `requires_grad` is trained, clipped, noised and sent. The rest is frozen, stays where
    it is, and is part of the model's hash. In the saved file, names follow "model.".

    Args:
        model: A model that takes `input_ids` and returns `logits`: for the next token (task
            "tokens"), or for a label of a sequence.

    Returns:
        The description. Every build is a copy of the model.

    Raises:
        DpflError: It is no such model.
    """
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise DpflError(
            "hugging_face takes a ready model of transformers or peft, not a "
            f"{type(model).__name__}."
        )
    return ReadyModel(Logits(copy.deepcopy(model)), type(model).__name__)
