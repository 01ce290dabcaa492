"""A module from its description, or a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dpfl.errors import DpflError

if TYPE_CHECKING:
    from torch import nn


class ModelDescription(Protocol):
    @property
    def name(self) -> str: ...

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module: ...


def built(model: ModelDescription, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Refused where the model does not fit the samples, or no memory."""
    try:
        return model.build(shape, classes, seed)
    except (RuntimeError, MemoryError, OverflowError, TypeError, ValueError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DpflError(
            f"The model {model.name} cannot be built for samples of shape {shape} ({cause}): "
            "choose another or a smaller one."
        ) from error
