"""Groups of parameters that are clipped together, and the factors by which they are clipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dpfl.errors import DpflError

Factors = Callable[[Tensor], Tensor]
"""Maps the norms (B, groups) of units to their clip factors (B, groups)."""


class NonFinite(DpflError):
    """The model's weights or the clip factors are not finite, so the sum would have no bound."""


def check_groups(
    groups: Sequence[Sequence[int]] | None, entries: int
) -> tuple[tuple[int, ...], ...]:
    """Checks that groups hold every parameter exactly once.

    Args:
        groups: Layout entries that are clipped together; None for one group of all.
        entries: The number of trained parameters.

    Returns:
        The groups.

    Raises:
        DpflError: A parameter is missing or occurs twice, or a group is empty.
    """
    every = tuple(range(entries))
    partition = (every,) if groups is None else tuple(tuple(group) for group in groups)
    members = tuple(sorted(entry for group in partition for entry in group))
    if members != every or not all(partition):
        raise DpflError(
            f"Clipping groups must hold each of the parameters 0 to {entries - 1} exactly once."
        )
    return partition


def compute_factors(factors: Factors, norms: Tensor) -> Tensor:
    """Computes the clip factors of units, and checks them.

    Args:
        factors: Maps norms to factors.
        norms: The norms (B, groups).

    Returns:
        The factors (B, groups), in the type of the norms.

    Raises:
        NonFinite: A factor is not finite.
        DpflError: The factors have another shape than the norms.
    """
    weights = factors(norms)
    if weights.shape != norms.shape:
        raise DpflError(
            f"Clipping factors must have the shape {tuple(norms.shape)}, but have "
            f"{tuple(weights.shape)}."
        )
    if not torch.isfinite(weights).all():
        raise NonFinite(
            "A clipping factor is not finite; divide by max(norm, bound), never by a norm of zero."
        )
    return weights.to(norms.dtype)
