"""Patch features: their definition written out slowly, what they must and must not see, and the
images that they come from.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dpfl.errors import DpflError
from dpfl.models.features.decorrelate import pink_images
from dpfl.models.features.leaf_images import leaf_images
from dpfl.models.features.patches import patch_features, patch_filters

SHAPE = (3, 16, 20)
FILTERS = 40


@pytest.fixture(scope="module")
def images() -> Tensor:
    return pink_images(SHAPE, 4)


def slow_features(image: np.ndarray, kernels: np.ndarray) -> np.ndarray:
    """Patch by patch: 6 pixels wide, every second one, means over a grid of 4 by 4 cells that may
    overlap.
    """
    rows, columns = ((side - 6) // 2 + 1 for side in image.shape[1:])
    alike = np.zeros((len(kernels), rows, columns))
    for row in range(rows):
        for column in range(columns):
            patch = image[:, 2 * row : 2 * row + 6, 2 * column : 2 * column + 6]
            patch = (patch - patch.mean()) / np.sqrt(patch.var() + 0.05 * image.var())
            alike[:, row, column] = np.maximum((kernels * patch).sum((1, 2, 3)) - 0.5, 0)
    cells = [
        [slice(cell * n // 4, -(-(cell + 1) * n // 4)) for cell in range(4)]
        for n in (rows, columns)
    ]
    found = np.array(
        [[[one[down, across].mean() for across in cells[1]] for down in cells[0]] for one in alike]
    )
    found = np.sqrt(found + 0.01)
    return (found - found.mean()) / found.std()


def test_it_is_the_definition_written_out(images):
    kernels = patch_filters(3, FILTERS)
    fast = patch_features(SHAPE, False, FILTERS)(images)
    assert fast.shape == (4, FILTERS, 4, 4)
    for image, found in zip(images, fast, strict=True):
        wanted = slow_features(image.double().numpy(), kernels.double().numpy())
        np.testing.assert_allclose(found.numpy(), wanted, atol=2e-3)


def test_filters_have_mean_zero_and_see_whitened_patches_at_one_length():
    kernels = patch_filters(3, FILTERS).flatten(1)
    assert float(kernels.mean(1).abs().max()) < 1e-6
    patches = (
        functional.unfold(leaf_images((3, 32, 32), 100), 6, stride=5).transpose(1, 2).flatten(0, 1)
    )
    patches = patches - patches.mean(1, keepdim=True)
    patches = patches * (patches.square().mean(1, keepdim=True) + 0.05).rsqrt()
    assert float((patches @ kernels.T).square().mean().sqrt()) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("mirror", [True, False])
def test_a_mirror_image_is_alike_with_mirror_only(images, mirror):
    features = patch_features(SHAPE, mirror, FILTERS)
    one, other = features(images), features(images.flip(-1))
    assert one.shape == (4, FILTERS, 4, 2 if mirror else 4)
    assert torch.allclose(one, other, atol=1e-4) == mirror


def test_brightness_and_contrast_do_not_matter_and_one_colour_is_harmless(images):
    features = patch_features(SHAPE, False, FILTERS)
    torch.testing.assert_close(features(3 * images + 1), features(images), atol=1e-3, rtol=0)
    assert bool(features(torch.full((1, *SHAPE), 0.3)).isfinite().all())


@pytest.mark.parametrize("neighbour", [float("nan"), float("inf"), 3e38, 1e6])
def test_whatever_else_is_there_changes_nothing_of_a_sample(images, neighbour):
    """Fault: with one variance for all, tests passed whose images all had the same."""
    features = patch_features(SHAPE, True, FILTERS)
    different = images * torch.tensor([1e-3, 1.0, 30.0, 1e3]).view(-1, 1, 1, 1)
    alone = torch.cat([features(image[None]) for image in different])
    beside = features(torch.cat([different[:2], torch.full((1, *SHAPE), neighbour), different[2:]]))
    torch.testing.assert_close(beside[[0, 1, 3, 4]], alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(alone, features(images), atol=1e-3, rtol=0)


@pytest.mark.parametrize("shape", [(3, 8, 8), (100,)])
def test_what_has_no_room_for_patches_is_refused(shape):
    with pytest.raises(DpflError, match="sides of at least 14"):
        patch_features(shape, False, FILTERS)
