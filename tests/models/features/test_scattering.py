"""The scattering transform: its definition written out slowly, and what it must and must not
see.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import dpfl
from dpfl.errors import DpflError
from dpfl.models.features.scattering import Scattering, normalise

Path = tuple[tuple[int, int], ...]
SIDE, PAD, J, L = 28, 4, 2, 8
TORUS = SIDE + 2 * PAD


@pytest.fixture(scope="module")
def scattering() -> Scattering:
    return Scattering()


@pytest.fixture(scope="module")
def images() -> Tensor:
    return dpfl.data.sample().train.x[:20]


def image_of(seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(1, 1, SIDE, SIDE))).float()


# The definition, point by point, in numpy: filters as sums over copies of the torus, convolutions
# as sums over pixels.


def slow_wave(width: float, slant: float, angle: float, frequency: float) -> np.ndarray:
    out = np.zeros((TORUS, TORUS), complex)
    for row in range(TORUS):
        for column in range(TORUS):
            for down in (-2, -1, 0, 1):
                for across in (-2, -1, 0, 1):
                    y, x = row + down * TORUS, column + across * TORUS
                    u, v = (
                        x * math.cos(angle) + y * math.sin(angle),
                        y * math.cos(angle) - x * math.sin(angle),
                    )
                    out[row, column] += np.exp(
                        -(u**2 + (slant * v) ** 2) / (2 * width**2) + 1j * frequency * u
                    )
    return out * slant / (2 * math.pi * width**2)


def slow_morlet(j: int, turn: int) -> np.ndarray:
    shape = (0.8 * 2**j, 4 / L, math.pi * turn / L)
    wave, envelope = slow_wave(*shape, 3 * math.pi / 4 / 2**j), slow_wave(*shape, 0.0)
    return wave - envelope * wave.sum() / envelope.sum()


def slow_convolution(image: np.ndarray, filter: np.ndarray) -> np.ndarray:
    """On the grid of the image, which may be coarser than that of the filter."""
    step = TORUS // len(image)
    filter, out = filter[::step, ::step] * step**2, np.zeros(image.shape, complex)
    for row in range(len(image)):
        for column in range(len(image)):
            out += filter[row, column] * np.roll(image, (row, column), (0, 1))
    return out


def slow_scattering(
    image: np.ndarray, paths: list[Path], scale: float, coarser: bool
) -> list[np.ndarray]:
    """With moduli on the grid of their scale, as they are computed, or all on the grid of the
    image, as they are defined.
    """
    padded = np.pad(image, PAD, mode="reflect")
    low, found = slow_wave(0.8 * 2 ** (J - 1), 1.0, 0.0, 0.0), []
    for path in paths:
        seen = padded
        for j, turn in path:
            seen = np.abs(slow_convolution(seen, scale * slow_morlet(j, turn)))
            step = len(seen) * 2**j // TORUS if coarser else 1
            seen = seen[::step, ::step]
        step = len(seen) * 2**J // TORUS
        found.append(slow_convolution(seen, low).real[::step, ::step][1:-1, 1:-1])
    return found


def slow_scale() -> float:
    """The largest scale of the wavelets that adds no energy at any frequency."""
    spectra = [
        np.abs(np.fft.fft2(slow_morlet(j, turn))) ** 2 for j in range(J) for turn in range(L)
    ]
    used = sum((one + np.roll(one[::-1, ::-1], (1, 1), (0, 1))) / 2 for one in spectra)
    room = 1 - np.abs(np.fft.fft2(slow_wave(0.8 * 2 ** (J - 1), 1.0, 0.0, 0.0))) ** 2
    return math.sqrt((room / used)[used > 1e-9].min())


def channel_of(path: Path) -> int:
    if len(path) < 2:
        return 0 if not path else 1 + L * path[0][0] + path[0][1]
    return 1 + J * L + L * path[0][1] + path[1][1]


@pytest.mark.parametrize(("coarser", "within"), [(True, 1e-5), (False, 0.06)])
def test_it_is_the_definition_written_out(scattering, images, coarser, within):
    paths: list[Path] = [(), ((0, 3),), ((1, 0),), ((1, 6),), ((0, 2), (1, 5)), ((0, 7), (1, 1))]
    scale = slow_scale()
    for image in (images[0], image_of(0)[0]):
        fast = scattering(image[None])[0].numpy()
        for path, wanted in zip(
            paths, slow_scattering(image[0].double().numpy(), paths, scale, coarser), strict=True
        ):
            assert np.abs(fast[channel_of(path)] - wanted).max() < within * np.abs(wanted).max(), (
                path
            )


@pytest.mark.parametrize(
    ("shape", "channels", "sides"),
    [((1, 28, 28), 81, (7, 7)), ((3, 32, 32), 243, (8, 8)), ((1, 24, 32), 81, (6, 8))],
)
def test_shapes_and_channels(shape, channels, sides):
    found = Scattering(shape=shape[1:])(torch.rand(2, *shape))
    assert found.shape == (2, channels, *sides)
    assert found.dtype == torch.float32


def test_three_scales_have_the_channels_of_the_formula():
    transform = Scattering(J=3, L=4, shape=(32, 32))
    assert transform.channels == 1 + 12 + 16 * 3
    assert transform(torch.rand(1, 1, 32, 32)).shape == (1, 61, 4, 4)


def test_no_images_give_no_features(scattering):
    assert scattering(torch.zeros(0, 1, 28, 28)).shape == (0, 81, 7, 7)
    assert normalise(scattering(torch.zeros(0, 1, 28, 28))).shape == (0, 81, 7, 7)


def test_every_image_and_colour_is_transformed_by_itself(scattering, images):
    together = scattering(images)
    for number in (0, 7, 19):
        torch.testing.assert_close(together[number], scattering(images[number : number + 1])[0])
    colours = scattering(images[:9].reshape(3, 3, 28, 28))
    torch.testing.assert_close(colours.reshape(9, 81, 7, 7), together[:9])
    changed = images.clone()
    changed[3] += 1
    assert torch.equal(normalise(scattering(changed))[4:], normalise(together)[4:])


def test_wavelets_have_mean_zero_and_the_gaussian_mean_one(scattering):
    for row in scattering.psi:
        for spectrum in row:
            assert float(spectrum[:, 0, 0].abs().max()) < 1e-6
    assert float(scattering.phi[0][0, 0]) == pytest.approx(1.0, abs=1e-6)


def test_a_constant_image_has_order_zero_only(scattering):
    found = scattering(torch.full((1, 1, 28, 28), 0.7))
    torch.testing.assert_close(found[0, 0], torch.full((7, 7), 0.7))
    assert float(found[0, 1:].abs().max()) < 1e-6


def test_filters_add_no_energy_at_any_frequency(scattering):
    energy = torch.cat([row[0] for row in scattering.psi]).square().sum(0)
    kept = scattering.phi[0].square() + (energy + energy.flip((0, 1)).roll((1, 1), (0, 1))) / 2
    assert float(kept.max()) == pytest.approx(1.0, abs=1e-5)


def test_two_images_never_come_further_apart(scattering, images):
    """Sixteen pixels become one, hence the factor; a little is left to the coarser grids."""
    pairs = [
        (images[:10], images[10:]),
        (image_of(1), image_of(2)),
        (images[:1], images[:1] + 0.1 * image_of(3)),
    ]
    for one, other in pairs:
        apart = 16 * (scattering(one) - scattering(other)).square().sum((1, 2, 3))
        padded = (
            torch.nn.functional.pad(one - other, (PAD,) * 4, mode="reflect").square().sum((1, 2, 3))
        )
        assert bool((apart <= 1.02 * padded).all())


def test_a_shift_by_a_pixel_changes_little(scattering, images):
    shifted = images.roll(1, 3)
    before, after = (
        normalise(scattering(images)).flatten(1),
        normalise(scattering(shifted)).flatten(1),
    )
    moved = (before - after).norm(dim=1) / before.norm(dim=1)
    pixels = (images - shifted).flatten(1).norm(dim=1) / (images - images.mean()).flatten(1).norm(
        dim=1
    )
    assert bool((moved < pixels).all())
    assert float(moved.median()) < 0.5 * float(pixels.median())


def test_a_quarter_turn_permutes_the_angles(scattering):
    image = torch.zeros(1, 1, SIDE, SIDE)
    image[..., 8:21, 8:21] = torch.from_numpy(np.random.default_rng(5).random((13, 13))).float()
    turned = image.rot90(1, (2, 3)).roll(1, 2)  # about a pixel of the coarse grid
    before, after = scattering(image)[0], scattering(turned)[0]
    order = [(turn + L // 2) % L for turn in range(L)]
    for j in range(J):
        first = before[1 + L * j : 1 + L * (j + 1)].rot90(1, (1, 2))
        torch.testing.assert_close(
            after[1 + L * j : 1 + L * (j + 1)][order][:, 1:],
            first.roll(1, 1)[:, 1:],
            atol=1e-4,
            rtol=1e-3,
        )


@pytest.mark.parametrize("j", range(J))
@pytest.mark.parametrize("turn", [0, 2, 5])
def test_a_plane_wave_is_strongest_at_its_own_scale_and_angle(scattering, j, turn):
    y, x = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    angle = math.pi * turn / L
    wave = torch.cos(3 * math.pi / 4 / 2**j * (x * math.cos(angle) + y * math.sin(angle)))
    first = scattering(wave[None, None])[0, 1:17, 2:5, 2:5].mean((1, 2))
    assert int(first.argmax()) == L * j + turn


def test_normalised_features_have_mean_zero_and_variance_one_in_groups_of_three(scattering, images):
    groups = normalise(scattering(images)).reshape(20, 27, -1)
    torch.testing.assert_close(groups.mean(2), torch.zeros(20, 27), atol=1e-4, rtol=0)
    assert bool((groups.var(2, unbiased=False) < 1.001).all())
    assert float(groups.var(2, unbiased=False).median()) > 0.9


@pytest.mark.parametrize("shape", [(27, 28), (4, 4)])
def test_sides_that_cannot_be_halved_are_refused(shape):
    with pytest.raises(DpflError, match="multiples of 4"):
        Scattering(shape=shape)


def test_images_of_another_size_are_refused(scattering):
    with pytest.raises(DpflError, match="takes images"):
        scattering(torch.zeros(1, 1, 32, 32))
