"""Two kinds of features as one vector, in which both count alike."""

import torch

from dpfl import models
from dpfl.models.features.decorrelate import pink_images

FILTERS = 40


def test_both_kinds_are_a_function_of_each_sample_alone_and_count_alike():
    shape = (1, 16, 16)
    images = pink_images(shape, 5)
    features = models.feature_map(models.scattering_linear(patches=FILTERS), shape)
    alone = models.feature_map(models.scattering_linear(), shape)(images).flatten(1)
    found = features(images)
    assert found.shape == (5, 81 * 16 + FILTERS * 16)
    torch.testing.assert_close(features(images[3:4]), found[3:4], atol=1e-4, rtol=0)
    torch.testing.assert_close(found[:, : alone.shape[1]], alone)
    torch.testing.assert_close(found[:, alone.shape[1] :].norm(dim=1), alone.norm(dim=1))
    assert features(images[:0]).shape == (0, found.shape[1])
