"""Clipping one flat vector whose entries lie one after another, as a model's do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.clips.clip import Clip, Groups
from dpfl.privacy.mechanisms.clips.rounding import squared_norms

if TYPE_CHECKING:
    from torch import Tensor


def group_norms(vector: Tensor, groups: Groups, offsets: Sequence[int]) -> Tensor:
    """Bounds the norm of each group of one flat vector from above.

    Args:
        vector: The vector.
        groups: The entries that share a bound.
        offsets: Where each entry begins, and the end of the last: one more than entries.

    Returns:
        The norms in float64.
    """
    squares = torch.cat([squared_norms(vector[None, a:b]) for a, b in pairwise(offsets)])
    return torch.stack([squares[list(members)].sum() for members in groups]).sqrt()


def measure_norms(vector: Tensor, clip: Clip | None = None) -> float:
    """Measures one vector, by the clip's own measure if it has one.

    Args:
        vector: The vector.
        clip: The clip; None for the Euclidean norm.

    Returns:
        An upper bound on the measure.
    """
    return float(_norm(vector, clip))


def _norm(vector: Tensor, clip: Clip | None) -> Tensor:
    """Measures a norm by the clip's own measure, where it has one; otherwise an upper bound on the
    Euclidean norm, in float64.
    """
    return clip.norms(vector[None]) if clip else squared_norms(vector[None]).sqrt()


def clip_vector(
    vector: Tensor,
    clip: Clip,
    names: Sequence[str],
    offsets: Sequence[int],
    out: Tensor | None = None,
) -> tuple[Tensor, bool]:
    """Brings one unit's vector inside its bound.

    Args:
        vector: The vector.
        clip: The clip.
        names: The names of the layout's entries.
        offsets: Where each entry begins, and the end of the last.
        out: Memory for the result; None for new memory.

    Returns:
        The clipped vector, and whether it was inside before.
    """
    if clip.reshapes:
        clipped_row = clip.clip_rows(vector[None])[0]
        inside = torch.equal(clipped_row, vector)
        return clipped_row if out is None else out.copy_(clipped_row), inside
    groups = clip.groups(names)
    if len(groups) == 1:
        factor = float(clip.factors(_norm(vector, clip)[None]))
        return torch.mul(vector, factor, out=out), factor >= 1
    factors = clip.factors(group_norms(vector, groups, offsets)[None])[0]
    clipped_vector = vector.clone() if out is None else out.copy_(vector)
    for factor, members in zip(factors, groups, strict=True):
        for index in members:
            clipped_vector[offsets[index] : offsets[index + 1]] *= float(factor)
    return clipped_vector, bool((factors >= 1).all())
