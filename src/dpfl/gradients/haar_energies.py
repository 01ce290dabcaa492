"""What matched Haar weights are made of: how much of a gradient lies in each band. To be measured
on public data only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy import Flat
from dpfl.privacy.mechanisms.haar import Haar


def haar_energies(
    module: nn.Module, x: Tensor, y: Tensor, by_layer: bool = False
) -> tuple[float, ...]:
    """E_b, the mean energy of the samples' gradients in each band of the whole vector, or of a
    parameter at a time.

    They choose the noise, so they are a release: take samples that are public, or pay for them.
    """
    model = FlatModel(module)
    layout = model.layout
    ends = tuple(end for end in (*layout.offsets[1:], layout.size) if end <= layout.trainable)
    haar = Haar(ends if by_layer else ends[-1:])
    gradients = ClippedGradients(
        model, Flat(1.0).groups([name for name, _ in zip(layout.names, ends, strict=False)])
    )
    total = torch.zeros(len(haar.band_sizes), dtype=torch.float64)
    for rows, written in gradients.rows(x, y):
        total += haar.energies(written) * (rows.stop - rows.start)
    return tuple((total / len(x)).tolist())
