"""Measures how much of a gradient lies in each Haar band. Matched Haar weights are computed from
that.

Measure it on public data only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy import Flat
from dpfl.privacy.mechanisms.noises.haar import Haar


def haar_energies(
    module: nn.Module, x: Tensor, y: Tensor, by_layer: bool = False
) -> tuple[float, ...]:
    """Computes E_b, the mean energy of the samples' gradients in each band.

    The energies choose the noise, so they are a release themselves. Take samples that are public,
    or pay for them.

    Args:
        module: The model.
        x: Public samples.
        y: Their labels.
        by_layer: Whether each parameter is transformed by itself. By default, the whole vector is.

    Returns:
        The energies, by band.
    """
    model = FlatModel(module)
    layout = model.layout
    ends = tuple(end for end in (*layout.offsets[1:], layout.size) if end <= layout.trainable)
    haar = Haar(ends if by_layer else ends[-1:])
    gradients = ClippedGradients(
        model, Flat(1.0).groups([name for name, _ in zip(layout.names, ends, strict=False)])
    )
    total = torch.zeros(len(haar.band_sizes), dtype=torch.float64)
    for rows, values in gradients.rows(x, y):
        total += haar.energies(values) * (rows.stop - rows.start)
    return tuple((total / len(x)).tolist())
