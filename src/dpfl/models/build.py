"""Builds a module from its description, or says in a sentence why it cannot be built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dpfl.errors import DpflError

if TYPE_CHECKING:
    from torch import nn


class ModelDescription(Protocol):
    """The description from which a module is built."""

    @property
    def name(self) -> str:
        """The name of the model."""

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        """Builds a module.

        Args:
            shape: The shape of a sample.
            classes: The number of scores.
            seed: Seeds the weights.

        Returns:
            The module.
        """


def build_module(
    model: ModelDescription, shape: tuple[int, ...], classes: int, seed: int
) -> nn.Module:
    """Builds a module.

    Args:
        model: Its description.
        shape: The shape of a sample.
        classes: The number of scores.
        seed: Seeds the weights.

    Returns:
        The module.

    Raises:
        DpflError: The model does not fit the samples, or no memory.
    """
    try:
        return model.build(shape, classes, seed)
    except (RuntimeError, MemoryError, OverflowError, TypeError, ValueError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DpflError(
            f"The model {model.name} cannot be built for samples of shape {shape} ({cause}): "
            "choose another or a smaller one."
        ) from error
