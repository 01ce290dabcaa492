"""The update of a client: its clip, and the noise that it carries."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import ClientTask, LocalTraining
from dpfl.privacy import (
    FixedSize,
    Flat,
    Gaussian,
    NoClip,
    PerLayer,
    Release,
)
from dpfl.privacy.mechanisms.clips.clip import ModelClip
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from tests.client.small_client import (
    CLASSES,
    FEATURES,
    PLAIN,
    SIZE,
    network,
    site,
    start,
    work,
)


def test_the_noise_of_an_upload_covers_what_float32_makes_of_one_sample(tmp_path: Path) -> None:
    """All weights are so long that a step is half of their last digit: one sample of 30 decides
    whether it is rounded up.
    """
    length, digit, gradient = 1.5 * 2.0**20, 0.125, 0.75 / math.sqrt(9.75)
    rate = digit / 2 / (0.98 * gradient)
    upload = UpdateRelease(clip=Flat(rate), noise=Gaussian(1e-9), sensitivity_bound=2 * rate / 30)
    task = replace(
        PLAIN,
        steps=1,
        samples=Release(FixedSize(30), Flat(1.0)),
        update=upload,
        local=LocalTraining(SGD(rate)),
    )

    def sent(name: str, odd: int, task: ClientTask) -> Tensor:
        where = site(tmp_path / name, nn.Linear(FEATURES, CLASSES))
        where.data.x.fill_(1)
        where.data.y.fill_(0)
        where.data.y[where.data.rows[1][7]] = odd
        reply = work(where, task, torch.full((CLASSES * (FEATURES + 1),), length))
        assert reply.update is not None
        return reply.update.clone()

    apart = float((sent("a", 0, task) - sent("b", 1, task)).norm())
    assert apart > 10 * upload.sensitivity_bound
    noise = sent("c", 0, replace(task, update=replace(upload, noise=Gaussian(1.0)))).std()
    assert noise > apart


@pytest.mark.parametrize("multiplier", [0.5, 3.0])
def test_the_noise_of_an_upload_is_no_more_than_that_where_rounding_moves_nothing(
    tmp_path: Path, multiplier: float
) -> None:
    """The clip is of the update itself, and the noise is for all that is inside."""
    upload = UpdateRelease(
        clip=Flat(1e-3), noise=Gaussian(multiplier), sensitivity_bound=2e-3, protects="client"
    )
    sent = work(
        site(tmp_path, network(200)),
        replace(PLAIN, update=upload, samples=None),
        start(network(200)),
    ).update
    assert sent is not None
    assert float(sent.std()) == pytest.approx(2e-3 * multiplier, rel=0.1)


def test_the_noise_covers_the_difference_of_a_clipped_model_to_a_long_one(tmp_path: Path) -> None:
    """Two models inside the clip are twice its level apart; so far from where they began, float32
    knows neither.
    """
    upload = UpdateRelease(
        clip=ModelClip(1.0), noise=Gaussian(1.0), sensitivity_bound=2.0, protects="client"
    )
    began = torch.full((SIZE,), 1e6)
    reply = work(site(tmp_path), replace(PLAIN, update=upload, samples=None), began)
    assert reply.update is not None
    assert float((reply.update + began).std()) > 2.0 + 2.0**-22 * float(began.norm())


def raw(folder: Path) -> Tensor:
    update = work(site(folder), PLAIN).update
    assert update is not None
    return update


@pytest.mark.parametrize("share", [0.1, 10.0])
def test_difference_clipping_bounds_the_update_and_keeps_its_direction(
    tmp_path: Path, share: float
) -> None:
    unclipped = raw(tmp_path)
    level = share * float(unclipped.norm())
    reply = work(site(tmp_path), replace(PLAIN, clients=Release(clip=Flat(level))))
    assert reply.inside == (share > 1)
    assert float(reply.update.norm()) <= level
    assert torch.allclose(
        reply.update, min(1.0, share) * unclipped, atol=2e-5 * float(unclipped.abs().max())
    )


@pytest.mark.parametrize("share", [0.1, 10.0])
def test_model_clipping_bounds_the_client_s_model_and_not_its_update(
    tmp_path: Path, share: float
) -> None:
    trained = start() + raw(tmp_path)
    level = share * float(trained.norm())
    reply = work(site(tmp_path), replace(PLAIN, clients=Release(clip=ModelClip(level))))
    assert reply.inside == (share > 1)
    assert float((start() + reply.update).norm()) <= level * (1 + 1e-6)
    assert torch.allclose(start() + reply.update, min(1.0, share) * trained, atol=2e-5)


def test_per_layer_clipping_bounds_each_layer_and_the_whole(tmp_path: Path) -> None:
    unclipped, level = raw(tmp_path), 0.01
    update = work(site(tmp_path), replace(PLAIN, clients=Release(clip=PerLayer(level)))).update
    first = FEATURES * 8 + 8
    assert float(update.norm()) <= level
    for layer in (update[:first], update[first:]):
        assert float(layer.norm()) == pytest.approx(level / math.sqrt(2), rel=1e-4)
    assert float(unclipped.norm()) > level


@pytest.mark.parametrize("shared_by", [2, 4, 25])
def test_shared_noise_has_its_share_of_the_variance(tmp_path: Path, shared_by: int) -> None:
    wide = network(800)
    vector = start(wide)
    release = Release(FixedSize(1), Flat(0.5), Gaussian(2.0), shared_by=shared_by)
    quiet = replace(PLAIN, clients=replace(release, noise=None, shared_by=None))
    loud = replace(PLAIN, clients=release)
    noise = (
        work(site(tmp_path, wide), loud, vector).update
        - work(site(tmp_path, wide), quiet, vector).update
    )
    stated = 2.0 * 0.5 / math.sqrt(shared_by)
    assert float(noise.std()) == pytest.approx(stated, rel=5 / math.sqrt(2 * len(noise)))


def test_shared_noise_differs_between_clients_and_rounds(tmp_path: Path) -> None:
    release = Release(FixedSize(1), Flat(1e-9), Gaussian(1e9), shared_by=2)
    noises = [
        work(site(tmp_path), replace(PLAIN, clients=release, client=client, round=round)).update
        for client, round in ((0, 0), (1, 0), (0, 1))
    ]
    correlations = torch.corrcoef(torch.stack(noises)) - torch.eye(3)
    assert float(correlations.abs().max()) < 0.5


def test_without_shared_noise_a_client_level_upload_is_not_noised_at_the_client(
    tmp_path: Path,
) -> None:
    at_the_server = replace(PLAIN, clients=Release(FixedSize(1), Flat(1e6), Gaussian(5.0)))
    assert torch.equal(work(site(tmp_path), at_the_server).update, raw(tmp_path))


def test_an_unclipped_upload_is_the_difference_itself(tmp_path: Path) -> None:
    reply = work(site(tmp_path), replace(PLAIN, clients=Release(clip=NoClip())))
    assert reply.inside
    assert torch.equal(reply.update, raw(tmp_path))
