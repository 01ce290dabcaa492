"""Images of dead leaves: drawn alike every time, with the edges of photographs."""

import torch
from torch import Tensor

from dpfl.models.features.decorrelate import pink_images
from dpfl.models.features.leaf_images import leaf_images


def test_leaves_are_the_same_every_time_and_have_edges_that_noise_has_not():
    leaves = leaf_images((3, 32, 32), 40)
    assert torch.equal(leaves, leaf_images((3, 32, 32), 40))
    torch.testing.assert_close(leaves.mean((1, 2, 3)), torch.zeros(40), atol=1e-5, rtol=0)
    torch.testing.assert_close(leaves.std((1, 2, 3)), torch.ones(40))

    def peakedness(images: Tensor) -> float:
        """Of differences between neighbours: 3 for a normal law."""
        steps = images.diff(dim=-1)
        return float(steps.pow(4).mean() / steps.square().mean().square())

    assert peakedness(pink_images((3, 32, 32), 40)) < 4 < 8 < peakedness(leaves)
