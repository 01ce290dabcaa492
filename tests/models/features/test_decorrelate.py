"""The fixed mixing of channels: from noise alone, and what it does to the features of such
noise.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from dpfl.models import feature_map, scattering_linear
from dpfl.models.features.decorrelate import POWER, decorrelating, pink_images
from dpfl.models.features.scattering import Scattering, scattering_features


def test_pink_images_have_a_spectrum_that_falls_like_one_over_f():
    images = pink_images((1, 64, 64), 200)[:, 0]
    window = torch.hann_window(64, periodic=False)
    power = torch.fft.fft2(images * window * window[:, None]).abs().square().mean(0).sqrt()
    low, high = float(power[0, 4]), float(power[0, 16])
    assert 3.0 < low / high < 5.5
    assert torch.equal(pink_images((1, 8, 8), 3), pink_images((1, 8, 8), 3))


def test_the_mixing_evens_out_the_covariance_by_its_power():
    mixing = torch.tensor([[2.0, 1.0], [0.0, 0.5]])

    def white(images: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(len(images), 2, 4, 4, generator=torch.Generator().manual_seed(1))
        return torch.einsum("dc,nchw->ndhw", mixing, noise)

    found = decorrelating(white, (1, 4, 4)).double()
    truth = mixing.double() @ mixing.T.double()
    after = found @ truth @ found.T
    before, left = (torch.linalg.eigvalsh(matrix) for matrix in (truth, after))
    spread = (before[1] / before[0]) ** (1 - 2 * POWER)
    assert torch.allclose(left[1] / left[0], spread, rtol=0.1)


def test_features_are_a_function_of_each_sample_alone():
    images = pink_images((1, 28, 28), 5)
    features = feature_map(scattering_linear(), (1, 28, 28))
    assert torch.allclose(features(images)[3:4], features(images[3:4]), atol=1e-5)


def test_the_mirrored_features_are_those_of_the_mirror_image_up_to_the_grid():
    """Images that are smooth on the grid of the features, and do not repeat on the torus."""
    images = functional.interpolate(pink_images((3, 8, 8), 4), 32, mode="bicubic")
    transform = Scattering(shape=(32, 32))
    found, truth = transform.mirror(transform(images)), transform(images.flip(-1))
    for order in (slice(1, 17), slice(17, 81)):
        pairs = (
            found.unflatten(1, (3, 81))[:, :, order].mean((-1, -2)),
            truth.unflatten(1, (3, 81))[:, :, order].mean((-1, -2)),
        )
        assert (pairs[0] - pairs[1]).norm() < 0.05 * pairs[1].norm()
    assert torch.equal(transform.mirror(found), transform(images))


def test_an_image_and_its_mirror_image_are_more_alike_with_mirror():
    images = pink_images((1, 28, 28), 20)
    apart = {}
    for mirror in (True, False):
        features = scattering_features((1, 28, 28), mirror)
        one, other = features(images), features(images.flip(-1))
        apart[mirror] = float((one - other).norm() / one.norm())
    assert scattering_features((1, 28, 28), True)(images).shape == (20, 81, 7, 4)
    assert apart[True] < 0.7 * apart[False]


def test_half_of_the_columns_of_mirrored_features_say_all():
    transform = Scattering()
    found = transform(pink_images((1, 28, 28), 3))
    whole = (found + transform.mirror(found)) / 2
    assert torch.allclose(transform.mirror(whole), whole)
