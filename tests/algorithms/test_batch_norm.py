"""Batch normalisation: refused at sample level, averaged at client level."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dpfl.algorithms import (
    Algorithm,
    dp_fedavg,
    fedavg,
    fedavg_dp,
)
from dpfl.data import Federation
from dpfl.errors import DpflError
from tests.algorithms.checks import Train


class Normalised(nn.Module):
    """A small residual network with batch statistics."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))
        self.last = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(torch.relu(x + self.second(x)))


def test_batch_norm_is_refused_at_sample_level_with_a_sentence_and_nothing_written(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    with pytest.raises(DpflError, match=r"BatchNorm1d.*GroupNorm"):
        train(federation, fedavg_dp(noise_multiplier=1.0), rounds=2, model=Normalised())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "algorithm",
    [
        fedavg(tau=4),
        dp_fedavg(noise_multiplier=0.1, tau=4),
        dp_fedavg(noise_multiplier=5.0, tau=2, clip=10.0),
    ],
)
def test_batch_norm_is_allowed_at_client_level_and_its_variances_stay_positive(
    train: Train, crowd: Federation, algorithm: Algorithm
) -> None:
    result = train(
        crowd,
        algorithm,
        rounds=5,
        model=Normalised(),
        accountant="rdp" if algorithm.unit == "client" else None,
    )
    statistics = {
        name: buffer for name, buffer in result.module.named_buffers() if "running" in name
    }
    fresh = dict(Normalised().named_buffers())
    assert len(statistics) == 4
    for name, buffer in statistics.items():
        assert not torch.equal(buffer, fresh[name]), f"{name} was averaged"
        assert torch.isfinite(buffer).all()
        if name.endswith("running_var"):
            assert float(buffer.min()) > 0
    assert math.isfinite(result.loss)
    if algorithm.unit == "none":
        assert result.accuracy > 0.5


def test_running_statistics_are_the_weighted_mean_of_the_clients(
    train: Train, federation: Federation
) -> None:
    """One round of one step: each client's running mean is 0.1 of its batch's mean, and the
    server's is their mean.
    """
    module = Normalised()
    with torch.no_grad():
        hidden = [module.first[1](federation.client(client)[0].flatten(1)) for client in range(4)]
    result = train(federation, fedavg(tau=1, batch_size=1000), rounds=1, model=Normalised())
    running_means = dict(result.module.named_buffers())["first.2.running_mean"]
    expected = 0.1 * torch.stack([batch.mean(0) for batch in hidden]).mean(0)
    assert torch.allclose(running_means, expected, atol=1e-5)


def test_a_last_batch_of_one_image_does_not_lose_a_client_with_batch_norm(
    train: Train, federation: Federation
) -> None:
    """250 images in batches of 83: the fourth batch of an epoch has one image, for which BatchNorm
    has no variance.
    """
    result = train(federation, fedavg(tau=4, batch_size=83), rounds=2, model=Normalised())
    assert not result.lost_replies
