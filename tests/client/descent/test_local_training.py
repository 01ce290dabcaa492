import math
from collections.abc import Callable
from functools import partial
from itertools import chain

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.client.dataset import ClientDataset
from dpfl.client.descent.local_training import clipped_sum, plain_steps, private_steps, shuffle
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.errors import DpflError
from dpfl.gradients import sum_rounding
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy import Flat, Gaussian, Keyed, PerLayer, Poisson, Release
from dpfl.privacy.mechanisms.noises.haar import Haar
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector

FEATURES, CLASSES = 12, 4


def network(width: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, width), nn.Tanh(), nn.Linear(width, CLASSES))


def images(count: int, seed: int = 1, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    # From small to large, so that a clip binds for some and not for others.
    sizes = torch.linspace(0.01, scale, count)[:, None]
    return sizes * torch.randn(count, FEATURES, generator=generator), torch.randint(
        CLASSES, (count,), generator=generator
    )


def keyed(seed: int) -> Callable[[str], np.random.Generator]:
    return lambda purpose: Keyed(seed).generator(purpose)


def change(
    data: tuple[Tensor, Tensor],
    release: Release,
    declared_size: int,
    steps: int,
    seed: int,
    rate: float = 1.0,
    width: int = 8,
) -> Tensor:
    """How private steps move the network."""
    model = FlatModel(network(width))
    before = model.read()
    x, y = data
    groups = release.clip.groups(model.layout.names)
    holdings = ClientDataset(x, y, torch.arange(len(x)), declared_size)
    private_steps(
        ClippedGradients(model, groups),
        holdings,
        steps,
        LocalTraining(SGD(rate)),
        release,
        keyed(seed),
    )
    return model.read() - before


def by_hand(
    data: tuple[Tensor, Tensor],
    rate: float,
    q: float,
    clip_and_noise: tuple[float, float],
    declared_size: int,
    steps: int,
    seed: int,
    layers: bool,
) -> Tensor:
    """DP-SGD written out: one image at a time, no line shared with the library but its random
    numbers.
    """
    module, (x, y), (clip, z) = network(), data, clip_and_noise
    before = torch.cat([p.detach().flatten().clone() for p in module.parameters()])
    draws, noises = keyed(seed)("batch"), keyed(seed)("sample noise")
    for _ in range(steps):
        coins = draws.random(len(x))
        total = [torch.zeros_like(p) for p in module.parameters()]
        for row in range(len(x)):
            if coins[row] >= q:
                continue
            loss = F.cross_entropy(module(x[row : row + 1]), y[row : row + 1])
            found = torch.autograd.grad(loss, list(module.parameters()))
            groups = [found[:2], found[2:]] if layers else [found]
            bound = clip / math.sqrt(len(groups))
            for member, gradient in enumerate(found):
                group = groups[member // 2] if layers else groups[0]
                norm = math.sqrt(sum(float(g.double().square().sum()) for g in group))
                total[member] += gradient * min(1.0, bound / norm)
        noise = gaussian_vector(len(before), z * clip, noises)
        flat = (torch.cat([t.flatten() for t in total]) + noise) / (q * declared_size)
        position = 0
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= rate * flat[position : position + parameter.numel()].view(
                    parameter.shape
                )
                position += parameter.numel()
    return torch.cat([p.detach().flatten() for p in module.parameters()]) - before


@pytest.mark.parametrize("layers", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_private_steps_equal_dp_sgd_written_out_image_by_image(seed: int, layers: bool) -> None:
    data = images(40)
    clip = PerLayer(0.7) if layers else Flat(0.7)
    release = Release(Poisson(0.3), clip, Gaussian(0.8))
    found = change(data, release, declared_size=50, steps=4, seed=seed, rate=0.5)
    expected = by_hand(
        data, 0.5, 0.3, (0.7, 0.8), declared_size=50, steps=4, seed=seed, layers=layers
    )
    assert float(expected.abs().max()) > 0.01
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)


def seed_of_an_empty_batch(rate: float, count: int) -> int:
    return next(
        seed for seed in range(1000) if not len(Poisson(rate).draw(count, keyed(seed)("batch")))
    )


def test_an_empty_batch_still_releases_noise_and_nothing_but_noise() -> None:
    seed = seed_of_an_empty_batch(0.1, 5)
    found = change(
        images(5),
        Release(Poisson(0.1), Flat(2.0), Gaussian(1.5)),
        declared_size=5,
        steps=1,
        seed=seed,
    )
    expected = -gaussian_vector(len(found), 1.5 * 2.0, keyed(seed)("sample noise")) / (0.1 * 5)
    assert float(found.std()) > 1
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_divisor_is_the_declared_size_and_neither_the_batch_nor_the_images_held() -> None:
    release = Release(Poisson(0.3), Flat(0.7), Gaussian(0.8))
    small = change(images(40), release, declared_size=40, steps=1, seed=3)
    large = change(images(40), release, declared_size=160, steps=1, seed=3)
    assert torch.allclose(small, 4 * large, atol=1e-6)


def test_images_that_no_coin_chose_change_nothing_under_the_same_declared_size() -> None:
    """Nor would they under a divisor that is fixed; a divisor of len(data) or of the batch would
    move with them.
    """
    x, y = images(40)
    seed = next(s for s in range(100) if keyed(s)("batch").random(40)[39] >= 0.3)
    release = Release(Poisson(0.3), Flat(0.7), Gaussian(0.8))
    whole_vector = change((x, y), release, declared_size=40, steps=1, seed=seed)
    assert torch.equal(
        change((x[:39], y[:39]), release, declared_size=40, steps=1, seed=seed), whole_vector
    )


def test_the_noise_of_one_step_has_the_stated_deviation_sigma_c_over_q_n() -> None:
    release = Release(Poisson(0.2), Flat(2.0), Gaussian(1.5))
    wide = 1200
    data = images(30)

    def step(seed: int) -> Tensor:
        """The same batch every time, other noise each time."""
        model = FlatModel(network(wide))
        before = model.read()
        holdings = ClientDataset(*data, torch.arange(30), 50)
        generator = lambda purpose: keyed(0 if purpose == "batch" else seed)(purpose)  # noqa: E731
        private_steps(
            ClippedGradients(model), holdings, 1, LocalTraining(SGD(0.7)), release, generator
        )
        return model.read() - before

    difference = step(1) - step(2)
    stated = 0.7 * 1.5 * 2.0 / (0.2 * 50)
    measured = float(difference.std()) / math.sqrt(2)
    assert measured == pytest.approx(stated, rel=5 / math.sqrt(2 * len(difference)))


def test_every_step_of_a_round_has_noise_of_its_own() -> None:
    release = Release(Poisson(1e-9), Flat(1.0), Gaussian(1.0))
    one = change(images(5), release, declared_size=5, steps=1, seed=0, rate=1e-9, width=500)
    two = change(images(5), release, declared_size=5, steps=2, seed=0, rate=1e-9, width=500)
    assert float((two - one).std()) == pytest.approx(float(one.std()), rel=0.1)
    assert abs(float(torch.corrcoef(torch.stack([one, two - one]))[0, 1])) < 0.1


@pytest.mark.parametrize("clip", [Flat(0.5), PerLayer(0.5)])
@pytest.mark.parametrize("scale", [0.1, 100.0])
def test_neighbouring_clients_differ_by_at_most_the_clip_in_the_sum(
    clip: Flat, scale: float
) -> None:
    """One image removed, the same coins for the others, the same declared size, the same noise
    (which then cancels).
    """
    x, y = images(30, scale=scale)
    release = Release(Poisson(0.5), clip, Gaussian(1e-3))
    moved = []
    for seed in range(12):
        whole_vector = change((x, y), release, declared_size=30, steps=1, seed=seed)
        removed = change((x[:29], y[:29]), release, declared_size=30, steps=1, seed=seed)
        moved.append(float((whole_vector - removed).norm()) * 0.5 * 30)
    assert max(moved) <= clip.clip_norm * (1 + 1e-6)
    assert min(moved) < 1e-6, "some coin left the image out"
    if scale == 100.0 and isinstance(clip, Flat):
        assert max(moved) == pytest.approx(clip.clip_norm, rel=1e-3), (
            "a large image reaches the bound"
        )


class Notebook(nn.Module):
    """Writes down the first number of every image that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.seen: list[list[int]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append([int(value) for value in x[:, 0]])
        return self.layer(x)


def test_plain_steps_use_every_image_once_an_epoch_in_a_new_order() -> None:
    module, (x, y) = Notebook(), images(20)
    x[:, 0] = torch.arange(20)
    rows = torch.arange(5, 15)
    plain_steps(
        FlatModel(module),
        ClientDataset(x, y, rows, 10),
        6,
        LocalTraining(SGD(0.01), batch_size=4),
        keyed(0),
    )
    assert [len(batch) for batch in module.seen] == [4, 4, 2, 4, 4, 2]
    first, second = list(chain(*module.seen[:3])), list(chain(*module.seen[3:]))
    assert sorted(first) == sorted(second) == rows.tolist()
    assert first != second


def test_plain_steps_equal_sgd_written_out() -> None:
    x, y = images(10)
    model, module = FlatModel(network()), network()
    plain_steps(
        model,
        ClientDataset(x, y, torch.arange(10), 10),
        3,
        LocalTraining(SGD(0.3), batch_size=10),
        keyed(0),
    )
    reference = torch.optim.SGD(module.parameters(), lr=0.3)
    for _ in range(3):
        reference.zero_grad()
        F.cross_entropy(module(x), y).backward()
        reference.step()
    assert torch.allclose(
        model.read(), torch.cat([p.detach().flatten() for p in module.parameters()]), atol=1e-6
    )


@pytest.mark.parametrize(("size", "batch"), [(1, 1), (7, 3), (4, 100)])
def test_shuffled_batches_never_repeat_an_image_within_an_epoch(size: int, batch: int) -> None:
    batches = shuffle(size, batch, np.random.default_rng(0))
    for _ in range(3):
        parts = max(1, size // batch if size % batch == 1 else math.ceil(size / batch))
        epoch = torch.cat([next(batches) for _ in range(parts)])
        assert sorted(epoch.tolist()) == list(range(size))


@pytest.mark.parametrize("weights", ["paper", "orthonormal"])
def test_one_sample_moves_a_sum_of_haar_clipped_gradients_by_the_level_in_the_weighted_norm(
    weights: str,
) -> None:
    model, level = FlatModel(network()), 0.1
    size = model.layout.trainable
    clip = HaarClip(level, weights=weights).for_model([size])
    gradients = ClippedGradients(model, clip.groups(model.layout.names))
    x, y = images(20, scale=30.0)
    everyone, without = (
        clipped_sum(gradients, clip, x, y),
        clipped_sum(gradients, clip, x[:-1], y[:-1]),
    )
    haar = Haar((size,))
    distance = float(haar.weighted_norm((everyone - without)[None], haar.weights(weights)))
    assert 0.99 * level < distance <= level


@pytest.mark.parametrize("units", [2, 3])
def test_more_units_than_the_margin_covers_are_refused_by_a_clip_with_its_own_measure(
    units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sum_rounding, "most_units", lambda *_: 2)
    model = FlatModel(torch.nn.Linear(4, 2))
    clip = HaarClip(1.0, weights="orthonormal").for_model([model.layout.trainable])
    sum_of = partial(
        clipped_sum,
        ClippedGradients(model),
        clip,
        torch.ones(units, 4),
        torch.zeros(units, dtype=torch.int64),
    )
    if units == 2:
        sum_of()
    else:
        with pytest.raises(DpflError, match="3 units is too large"):
            sum_of()
