"""Refuses labels that a task cannot be trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpfl.errors import DpflError
from dpfl.lazy_import import torch

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.tasks.task import Labels


def whole(values: Labels, what: str) -> Tensor:
    """Labels as whole numbers.

    Args:
        values: The labels.
        what: What they are, for the error.

    Returns:
        int64.

    Raises:
        DpflError: One of them is no whole number.
    """
    labels = torch.as_tensor(values).detach().cpu()
    if labels.is_complex() or (
        labels.is_floating_point() and not bool(torch.isfinite(labels).all())
    ):
        raise DpflError(
            f"{what} must be whole numbers, but some are not finite or complex: correct them."
        )
    whole_labels = labels.to(torch.int64)
    if not torch.equal(whole_labels.to(labels.dtype), labels):
        raise DpflError(
            f"{what} must be whole numbers, but some are not: number the classes 0, 1, 2, ..."
        )
    return whole_labels.contiguous()


def between(labels: Tensor, least: int, most: int, what: str) -> Tensor:
    """Refuses labels outside of a range.

    Args:
        labels: The labels.
        least: The smallest label.
        most: The largest label.
        what: What they are, for the error.

    Returns:
        The labels.

    Raises:
        DpflError: One of them is outside.
    """
    if labels.numel() and (int(labels.min()) < least or int(labels.max()) > most):
        raise DpflError(
            f"{what} run from {int(labels.min())} to {int(labels.max())}: number them from {least} "
            f"to {most}, or declare the "
            "task that they are for."
        )
    return labels


def check_positive(values: tuple[float, ...], what: str) -> None:
    """Refuses values that are not positive numbers.

    Args:
        values: The values.
        what: What they are, for the error.

    Raises:
        DpflError: One of them is not.
    """
    if not all(0 < value < float("inf") for value in values):
        raise DpflError(f"{what} must be positive numbers, not {values}.")
